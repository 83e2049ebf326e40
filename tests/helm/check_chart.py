"""Renders the Helm chart for each file of values and checks it against the schemas.

The templates use only `.Values`, `.Release.Name`, `if`, `not`, `end` and `quote`, so a few
lines render them. Usage: check_chart.py CHART VALUES... ; prints what was checked.
"""

import copy
import json
import pathlib
import re
import sys

import kubernetes_validate
import yaml

ACTION = re.compile(r"\{\{-?\s*(.*?)\s*\}\}")


def look_up(path, values):
    found = {"Values": values, "Release": {"Name": "hubs"}}
    for name in path.lstrip(".").split("."):
        found = found[name]
    return found


def evaluate(text, values):
    path, *filters = [part.strip() for part in text.split("|")]
    assert filters in ([], ["quote"]), text
    value = look_up(path, values)
    return json.dumps(str(value)) if filters else str(value)


def render(template, values):
    lines, shown = [], [True]
    for line in template.splitlines():
        control = re.fullmatch(r"\{\{-\s*(if not|if|end)\s*(.*?)\s*\}\}", line)
        if control is None:
            if all(shown):
                lines.append(ACTION.sub(lambda it: evaluate(it[1], values), line))
        elif control[1] == "end":
            shown.pop()
        else:
            shown.append(bool(look_up(control[2], values)) == (control[1] == "if"))
    assert shown == [True], "every if has its end"
    return "\n".join(lines)


def merge(base, changes):
    merged = copy.deepcopy(base)
    for name, value in changes.items():
        known = merged[name]
        merged[name] = merge(known, value) if isinstance(known, dict) else value
    return merged


def main(chart, files):
    chart = pathlib.Path(chart)
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    for file in files:
        changes = yaml.safe_load(pathlib.Path(file).read_text()) or {}
        values = merge(defaults, changes)
        for template in sorted((chart / "templates").glob("*.yaml")):
            document = yaml.safe_load(render(template.read_text(), values))
            if document is None:
                continue
            kubernetes_validate.validate(document, "1.37", strict=True)
            print(pathlib.Path(file).stem, document["kind"])


main(sys.argv[1], sys.argv[2:])
