#!/bin/sh
# An agent on a local model. The model writes its call as text; maru turns it into a tool
# call, runs it and lets the model answer. With Ollama no settings are needed.
. ../lib.sh
start_model
start_hub --config maru.yaml
maru models
maru chat "Where does EMP001 work?"
