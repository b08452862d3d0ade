"""Puts a local `redis` before a script that refuses what the script's header does not declare.

Plain Redis never notices a key that is not in KEYS, nor a write to one that is only read. This asks
the server itself which keys a command touches, and how.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from autoscale_enforcer.ledger.scripts import SHEBANG, Script, scripts_folder

_ACCESS = re.compile(r"^-- KEYS\[\d+\] +\w+\s+\w+\s+(r|w|rw) ", re.MULTILINE)

_PRELUDE = """
local redis = (function(server)
  local access = {%s}
  local function check(command, ...)
    local asked, touched = pcall(server.call, 'COMMAND', 'GETKEYSANDFLAGS', command, ...)
    if not asked then
      return  -- a command without keys
    end
    for _, item in ipairs(touched) do
      local may = ''
      for i, key in ipairs(KEYS) do
        if key == item[1] then may = access[i] end
      end
      local flags = ' '
      for _, flag in ipairs(item[2]) do
        flags = flags .. flag.ok .. ' '
      end
      local reads = string.find(flags, ' RO ') or string.find(flags, ' access ')
      local writes = not string.find(flags, ' RO ')
      if reads and not string.find(may, 'r') or writes and not string.find(may, 'w') then
        error('undeclared: ' .. command .. ' ' .. item[1] .. flags .. 'declared ' .. may)
      end
    end
  end
  return setmetatable({call = function(...)
    check(...)
    return server.call(...)
  end}, {__index = server})
end)(redis)
"""


def declared_access(name: str) -> list[str]:
    """What a script's header says it does with each of its KEYS: r, w or rw."""
    return _ACCESS.findall((scripts_folder() / f"{name}.lua").read_text())


def with_prelude(script: Script, access: list[str] | None = None) -> Script:
    """The same script, which now fails where it touches what is not declared."""
    declared = declared_access(script.name) if access is None else access
    prelude = _PRELUDE % ", ".join(f"'{a}'" for a in declared)
    body = script.text.removeprefix(f"{SHEBANG}\n")
    text = f"{SHEBANG}{prelude}{body}"
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return replace(script, text=text, sha=sha)
