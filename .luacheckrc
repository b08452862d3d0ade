-- The scripts run inside Redis (Lua 5.1). cmsgpack and bit are left out: fakeredis lacks them.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV" }
max_line_length = 100
max_comment_line_length = 160  -- a header's Include line is data, and one line

-- An include is a local of the scripts that list it; a contract test checks the lists.
for path in io.popen("ls lua/lib"):lines() do
  table.insert(read_globals, (path:gsub("%.lua$", "")))
end
files["lua/lib"].ignore = { "211" }
-- A row's pattern is one literal, for putting it together anew in each run would cost more than all of
-- the script's arithmetic.
for _, row in ipairs({ "node_row", "pod_row" }) do
  files["lua/lib/" .. row .. ".lua"].max_line_length = false
end
