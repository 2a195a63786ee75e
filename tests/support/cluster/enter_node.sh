#!/bin/sh
# Runs a command on a machine that a network name space plays: its name, its host name, the command.
# It has a /dev/shm of its own, which goes with the last process there, however that ends.
name=$1
host=$2
shift 2
enter='mount -t tmpfs tmpfs /dev/shm && hostname "$0" && exec "$@"'
exec ip netns exec "$name" unshare --uts --mount sh -c "$enter" "$host" "$@"
