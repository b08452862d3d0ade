"""What the documents say of the code: links, commands, keys, scripts, reasons, fields, ports."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from autoscale_enforcer.api.extender.app import VERBS
from autoscale_enforcer.cli.main import COMMANDS
from autoscale_enforcer.config.scheduler_config import _FORMATS
from autoscale_enforcer.config.settings import Settings
from autoscale_enforcer.ledger import keys
from autoscale_enforcer.ledger.scripts import load_scripts
from autoscale_enforcer.policy.fit import Reason
from autoscale_enforcer.wire.protocol import ProtocolVersion
from tests.support.containers import DOORS

ROOT = Path(__file__).parents[2]
SHIPPED_SCHEDULER = "deploy/base/scheduler-config.yaml"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/*.md")])
PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def read(name: str) -> str:
    return (ROOT / name).read_text()


def section(name: str, heading: str) -> str:
    """The text under a heading, up to the next one of its rank."""
    found = re.search(rf"(?ms)^(##+) {heading}\n(.*?)(?=^\1 |\Z)", read(name))
    assert found, f"{name} has no heading {heading}"
    return found[2]


def first_cells(text: str) -> list[str]:
    """The first column of the tables in a text, without their heads."""
    rows = re.findall(r"(?m)^\| *(.*?) *\|", re.sub(r"(?m)^\|.*\n\| *---.*$", "", text))
    return [cell.strip("`") for cell in rows]


def anchors(text: str) -> set[str]:
    """What GitHub makes of headings."""
    heads = re.findall(r"(?m)^#+ (.*)$", text)
    return {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}


def command_lines(text: str) -> list[str]:
    """Every `autoscale-enforcer …` in a code block or between backquotes."""
    blocks = re.findall(r"(?m)^    (.*)$", text) + re.findall(r"`([^`\n]+)`", text)
    lines = [line for line in blocks if re.match(r"autoscale-enforcer [a-z]", line)]
    return [re.sub(r"\s*[>|].*", "", line) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in link]

    for link in links:
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_paths_of_the_tree_that_are_named_exist(page: Path) -> None:
    roots = "service|lua|tests|deploy|docs|requirements|bench"
    named = re.findall(rf"`((?:{roots})/[\w./-]+)`", page.read_text())

    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_commands_that_are_shown_can_be_parsed(page: Path) -> None:
    for line in command_lines(page.read_text()):
        name, *words = shlex.split(line)[1:]
        command = COMMANDS[name].load()
        context = click.Context(command)

        _, left, _ = command.make_parser(context).parse_args(words)

        assert left == [], line


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_flags_and_variables_that_are_named_exist(page: Path) -> None:
    commands = [entry.load() for entry in COMMANDS.values()]
    options = {opt for command in commands for param in command.params for opt in param.opts}
    variables = {"AE_" + option.removeprefix("--").replace("-", "_").upper() for option in options}

    flags = set(re.findall(r"`(--[a-z-]+)", page.read_text()))
    named = set(re.findall(r"\bAE_[A-Z_]+\b", page.read_text()))

    foreign = {"--randomly-seed"}
    assert flags - options - foreign == set()
    assert named - variables == set()


def test_makefile_has_every_target_that_is_named() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", read("Makefile")))

    named = {
        name for page in PAGES for name in re.findall(r"\bmake ([a-z-]+)\b`", page.read_text())
    }
    shown = set(re.findall(r"(?m)^    make ([a-z-]+)$", read("README.md")))

    assert named | shown <= targets
    assert shown == {"run", "test"}


def test_readme_names_every_document() -> None:
    links = set(re.findall(r"\]\(([^)#]+)", read("README.md")))

    pages = {name for name in PAGE_IDS if name != "README.md"}

    assert pages <= links


def test_reasons_are_the_closed_set_in_its_order() -> None:
    listed = first_cells(read("docs/reasons.md"))

    assert listed == [str(reason) for reason in Reason]


def test_key_catalogue_is_that_of_the_code() -> None:
    listed = first_cells(section("ARCHITECTURE.md", "Keys"))

    assert listed == [*keys.BOOKS, *keys.BESIDE]


def test_key_catalogue_has_the_types_of_the_scripts() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| (\w+) \|", section("ARCHITECTURE.md", "Keys"))
    headers = "\n".join(path.read_text() for path in ROOT.glob("lua/*.lua"))
    used = set(re.findall(r"(?m)^-- KEYS\[\d+\] +(?:new_)?(\w+) +(\w+)", headers))

    assert set(rows) == used


def test_script_catalogue_is_that_of_the_folder() -> None:
    listed = first_cells(section("ARCHITECTURE.md", "Scripts"))

    assert sorted(listed) == sorted(load_scripts())


def test_invariants_are_numbered_as_verify_does() -> None:
    numbers = re.findall(r"(?m)^(\d)\. ", section("ARCHITECTURE.md", "Invariants"))
    reported = set(
        re.findall(r"Breach\(\s*(\d)", read("service/autoscale_enforcer/ledger/verify.py"))
    )

    assert numbers == ["1", "2", "3", "4", "5"]
    assert reported <= set(numbers)


def test_module_table_names_every_part() -> None:
    cells = first_cells(section("ARCHITECTURE.md", "Modules"))
    listed = {name for cell in cells for name in re.findall(r"\w+", cell)}
    package = ROOT / "service" / "autoscale_enforcer"
    parts = {path.name for path in package.iterdir() if path.is_dir() and path.name[0] != "_"}

    assert listed == parts


def test_config_page_has_every_format_and_field() -> None:
    named = set(re.findall(r"`([\w.\[\]]+)`", read("docs/config.md")))
    fields = set(_FORMATS)
    for each in _FORMATS.values():
        fields |= each.used | each.unused

    assert first_cells(section("docs/config.md", "Formats")) == list(_FORMATS)
    assert {
        name for name in fields if name not in named and f"{name}[].nodes" not in named
    } == set()


def test_config_page_has_the_releases_of_the_formats() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| ([^|]+) \|", section("docs/config.md", "Formats"))

    assert dict(rows) == {marker: each.releases for marker, each in _FORMATS.items()}


def test_agents_page_has_every_version() -> None:
    rows = re.findall(r"(?m)^\| (v\d\.\d) \| (\d) \| ([^|]+) \|(.*)$", read("docs/agents.md"))

    listed = {version: int(number) for version, number, _, _ in rows}

    assert listed == {version.label: int(version) for version in ProtocolVersion}
    for label, _, _, rest in rows:
        version = ProtocolVersion[label.upper().replace(".", "_")]
        cells = [cell.strip() for cell in rest.split("|")]
        assert cells[0] == ("fractions" if version.has_fractional_cpu else "whole")
        assert cells[1] == ("bytes" if version.mem_in_bytes else "slots")
        assert cells[2] == ("the request's" if version.sends_compute_unit else "the config's")
        assert cells[3] == ("yes" if version.has_last_permit else "no")
        assert ("resourceUnit" in cells[4]) == version.answers_resource_unit


def test_ports_page_has_every_port_and_verb() -> None:
    listen, page = Settings().listen, read("docs/ports.md")

    ports = (listen.extender_port, listen.agent_port, listen.admin_port)

    assert first_cells(page)[:3] == [str(port) for port in ports]
    assert ports == DOORS
    assert all(f"/extender/{verb}`" in page for verb in VERBS)
    doors = re.findall(
        r'add_(?:get|post)\("([^"]+)"', read("service/autoscale_enforcer/api/admin.py")
    )
    assert [door for door in doors if f"{door}`" not in page] == []


def test_scheduler_snippet_is_what_we_ship() -> None:
    snippet = re.search(r"(?s)```yaml\n(.*?)```", read("README.md"))
    assert snippet

    shown, shipped = yaml.safe_load(snippet[1]), yaml.safe_load(read(SHIPPED_SCHEDULER))

    assert shown == {key: shipped[key] for key in shown}
    (extender,) = shown["extenders"]
    verbs = {value for key, value in extender.items() if key.endswith("Verb")}
    assert verbs == VERBS.keys() - {"reserve", "unreserve"}
    assert extender["urlPrefix"].endswith(f":{DOORS[0]}/extender")
    assert (extender["ignorable"], extender["nodeCacheCapable"]) == (False, True)
