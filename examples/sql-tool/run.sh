#!/bin/sh
# A tool in SQL, with a parameter that models understand, from a file.
. ../lib.sh
start_hub
maru tools import tool.yaml
maru call get_user_daily_limit '{"user_name":"hong"}'
