#!/bin/sh
# What mpirun calls instead of ssh: its first word is a host's address, the rest a command line for a shell there.
# $NET_NAMES lists the name spaces in the order of the addresses.
host=$1
shift
number=${host##*.}
name=$(echo "$NET_NAMES" | cut -d ' ' -f "$number")
exec ip netns exec "$name" unshare --uts sh -c 'hostname "$0" && exec "$@"' "node$((number - 1))" sh -c "$*"
