"""`lancelet completion SHELL`: prints a completion script for a shell.

source <(lancelet completion bash)
lancelet completion fish > ~/.config/fish/completions/lancelet.fish
"""

from __future__ import annotations

import argparse
import shlex

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.main import COMMANDS
from lancelet.cli.output import Output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the script."""
    options = {name: _options(name) for name in COMMANDS}
    if arguments.shell == "fish":
        script = _fish(options)
    else:
        script = _bash(options)
        if arguments.shell == "zsh":
            script = f"autoload -Uz bashcompinit && bashcompinit\n{script}"
    out.text(script, {"script": script})
    return ExitCode.DONE


def _options(name: str) -> list[str]:
    from lancelet.cli.main import command_parser  # noqa: PLC0415  it imports the commands

    parser = command_parser(name)
    actions = parser._actions  # noqa: SLF001  argparse has no public list of actions
    found = [max(action.option_strings, key=len) for action in actions if action.option_strings]
    for action in actions:
        if not action.option_strings and action.choices:
            found += map(str, action.choices)
    found += parser.get_default("actions") or ()
    return found


def _bash(options: dict[str, list[str]]) -> str:
    cases = "\n".join(
        f"    {name}) words={shlex.quote(' '.join(candidates))} ;;"
        for name, candidates in options.items()
    )
    return f"""_lancelet() {{
  local words
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {shlex.quote(" ".join(options))} -- "$2"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$2") $(compgen -f -- "$2"))
}}
complete -o filenames -F _lancelet lancelet"""


def _fish(options: dict[str, list[str]]) -> str:
    lines = []
    for name, candidates in options.items():
        does = shlex.quote(COMMANDS[name])
        lines.append(f"complete -c lancelet -n __fish_use_subcommand -a {name} -d {does}")
        for candidate in candidates:
            is_flag = candidate.startswith("--")
            flag = f"-l {candidate[2:]}" if is_flag else f"-a {candidate}"
            lines.append(f"complete -c lancelet -n '__fish_seen_subcommand_from {name}' {flag}")
    return "\n".join(lines)
