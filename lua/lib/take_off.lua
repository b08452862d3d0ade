-- take_off: takes a pod off the sums of the node it is on.
-- Takes: table of loaded nodes, table of keys, the pod's fields or nil, epoch
-- Gives: nothing
-- Include: count_pod, load_node
local function take_off(loaded, keys, pod, epoch)
  if pod and pod.node ~= '-' then
    count_pod(load_node(loaded, keys, pod.node, epoch).row, pod, -1)
  end
end
