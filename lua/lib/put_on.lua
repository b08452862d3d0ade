-- put_on: adds a pod to the sums of the node it is on; an unknown node becomes an absent row.
-- Takes: table of loaded nodes, table of keys, the pod's fields, epoch
-- Gives: nothing
-- Include: count_pod, load_node, new_node
local function put_on(loaded, keys, pod, epoch)
  local entry = load_node(loaded, keys, pod.node, epoch)
  entry.row = entry.row or new_node(epoch)
  count_pod(entry.row, pod, 1)
end
