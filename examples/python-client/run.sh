#!/bin/sh
# A client in Python without any library: one request is a call.
. ../lib.sh
start_hub
python3 client.py "$HUB"
