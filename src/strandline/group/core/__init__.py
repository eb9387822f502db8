"""The first layer of groups: steps, what they wait for, what they hand on. It knows no check and no undo."""
