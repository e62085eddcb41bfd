-- Queues a request while no replica of a backend answers. It is refused once the last replica has been gone for some
-- seconds. lua-load gives the backend's name and the seconds.
local backend, patience_s = ...
patience_s = tonumber(patience_s)

local LOOK_MS = 50

local function now()
    local time = core.now()
    return time.sec + time.usec / 1000000
end

local function num_living()
    return core.backends[backend]:get_stats()["act"]
end

-- A replica that drains or is slow fails its checks, and still answers requests.
local function answers_checks()
    for _, server in pairs(core.backends[backend].servers) do
        local stats = server:get_stats()
        if stats["status"] ~= "MAINT" and (stats["check_status"] or ""):find("L7", 1, true) then return true end
    end
    return false
end

local is_there, seen_at = true, now()

core.register_task(function()
    while true do
        is_there = num_living() > 0 or answers_checks()
        if is_there then seen_at = now() end
        core.msleep(LOOK_MS)
    end
end)

core.register_fetches("num_living", num_living)

core.register_action("queue", {"http-req"}, function()
    if num_living() > 0 then return end
    repeat core.msleep(2 * LOOK_MS) until is_there or now() - seen_at >= patience_s
end)
