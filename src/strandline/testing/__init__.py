"""What tests of Strandline, and of programs that use it, can build on."""
