-- Be told what is rung on a channel.
LISTEN {channel};
