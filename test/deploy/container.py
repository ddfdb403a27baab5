"""usage: container.py BUILD_FOLDER

Checks the Containerfile's text: each source exists, and the image's user is unprivileged.
check_container_image builds its last stage."""

import fnmatch
import pathlib
import re
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy/container/Containerfile"
KNOWN = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "LABEL", "USER", "EXPOSE", "STOPSIGNAL", "CMD"}
LABELS = {"title", "description", "version"}


def instructions():
    """Yields (name, the rest) of each instruction. Continued lines are joined."""
    text = "\n".join(line for line in FILE.read_text().splitlines() if not line.lstrip().startswith("#"))
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, rest.strip()


def stages():
    """Returns (name, base, instructions) of each stage, without those before the first stage."""
    found = []
    for name, rest in instructions():
        if name == "FROM":
            base, _, alias = rest.partition(" AS ")
            found.append((alias, base, []))
        elif found:
            found[-1][2].append((name, rest))
    return found


def ignored(source):
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    return any(fnmatch.fnmatch(source, pattern) for pattern in patterns)


def copy_problems(earlier, rest):
    words = rest.split()
    stage = next((word.removeprefix("--from=") for word in words if word.startswith("--from=")), None)
    if stage is not None:
        return [] if stage in earlier else [f"COPY {rest}: there is no earlier stage {stage}"]
    sources = [word for word in words if not word.startswith("--")][:-1]
    return [f"COPY {rest}: {source} is not in the context" for source in sources
            if ignored(source) or not list(ROOT.glob(source) if source != "." else [ROOT])]


def run_problems(earlier, rest):
    command = re.sub(r"--mount=\S+", "", rest)
    problems = [f"RUN: there is no earlier stage {stage}" for stage in re.findall(r"--mount=\S*from=(\w+)", rest)
                if stage not in earlier]
    if subprocess.run(["sh", "-n", "-c", command]).returncode != 0:
        problems.append(f"RUN {command}: the shell does not understand it")
    return problems + [f"RUN: there is no {script}" for script in re.findall(r"\btools/[\w.]+", command)
                       if not (ROOT / script).is_file()]


def final_problems(body):
    names = [name for name, _ in body]
    user = next((rest for name, rest in reversed(body) if name == "USER"), "root")
    pod = next(document for document in yaml.safe_load_all((ROOT / "deploy/kubernetes/base/router.yaml").read_text())
               if document["kind"] == "Deployment")["spec"]["template"]["spec"]["securityContext"]
    if user != f"{pod['runAsUser']}:{pod['runAsGroup']}" or user.startswith("0"):
        yield f"USER {user}: expected the one of deploy/kubernetes, which is not root"
    if "RUN" in names[names.index("USER"):] if "USER" in names else True:
        yield "USER: expected after the last RUN"
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", " ".join(rest for name, rest in body if name == "LABEL")))
    if labels != LABELS:
        yield f"LABEL: expected {sorted(LABELS)}, got {sorted(labels)}"
    version = re.search(r'image\.version="([^"]+)"', str(body))
    if version is None or f'"{version.group(1)}"' not in (ROOT / "src/base/version.h").read_text():
        yield "LABEL: the version is not that of src/base/version.h"


def main():
    problems = [f"{name}: not an instruction that this file should have" for name, _ in instructions() if name not in KNOWN]
    earlier = set()
    for name, base, body in stages():
        for instruction, rest in body:
            if instruction == "COPY":
                problems += copy_problems(earlier, rest)
            if instruction == "RUN":
                problems += run_problems(earlier, rest)
        earlier.add(name)
    if len(earlier) != 2:
        problems.append(f"expected two stages, got {sorted(earlier)}")
    problems += final_problems(stages()[-1][2])
    print("\n".join(problems) or "container: as it should be")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
