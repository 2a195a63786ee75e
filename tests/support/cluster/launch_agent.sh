#!/bin/sh
# What mpirun calls instead of ssh: its first word is a host's address, the rest a command line for a shell there.
# $NET_NAMES lists the name spaces in the order of the addresses.
host=$1
shift
number=${host##*.}
name=$(echo "$NET_NAMES" | cut -d ' ' -f "$number")
exec "$(dirname "$0")/enter_node.sh" "$name" "node$((number - 1))" sh -c "$*"
