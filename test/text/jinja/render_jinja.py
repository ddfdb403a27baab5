"""The reference for our template interpreter: jinja2, set up as transformers does. It reads a list
of {"template", "input"} from standard input and prints a list of {"text"} or {"error"}."""

import datetime
import json
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(case):
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(0).strftime(form)
    try:
        return {"text": environment.from_string(case["template"]).render(**case["input"])}
    except Exception as error:
        # Any error of the template is a result here.
        return {"error": f"{type(error).__name__}: {error}"}


json.dump([render(case) for case in json.load(sys.stdin)], sys.stdout)
