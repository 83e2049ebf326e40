#!/bin/sh
# Calls tools on the sample data. No hub has to run.
. ../lib.sh
maru tools | head -3
maru call calculate_vacation_days '{"employee_id":"EMP001","year":2026}'
