-- The health of Dayfly's objects for Argo CD. An object that is being deleted is Progressing for Argo CD itself.
local status = obj.status or {}
if (status.observedGeneration or -1) < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "the operator has not seen the newest spec yet"}
end
local found = {}
for _, condition in ipairs(status.conditions or {}) do
  found[condition.type] = condition
end
local ready = found.Ready or {}
if ready.status == "True" then
  return {status = "Healthy", message = ready.message}
end
if found.Stalled and found.Stalled.status == "True" then
  return {status = "Degraded", message = found.Stalled.message}
end
return {status = "Progressing", message = ready.message or "the operator has not reported yet"}
