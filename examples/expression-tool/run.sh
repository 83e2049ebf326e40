#!/bin/sh
# A tool as an expression: a bounded subset of Python, without files and network.
. ../lib.sh
start_hub
maru tools import tool.yaml
maru call summarize_prices '{"prices":[3,4.5,9]}'
