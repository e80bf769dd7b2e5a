--- LUMI: the folder of a run on Lustre, <job>/step<N>/rank<R>.pt, as OLMo's trainer left it there.
---
--- Seen in public sources: allenai/OLMo scripts/7b-on-lumi.sh and 70b-on-lumi.sh (32 nodes of 8
--- ranks, ROCm, logs and data in $FLASH_DIR and $SCRATCH_DIR on Lustre, run_name the Slurm job
--- id, save folders named by it); olmo/checkpoint.py (rank files; saved as step<N>-tmp, renamed).
--- Assumed: that a run went on in several jobs below one folder; that what the purge of the scratch
--- took away is a whole step or some files of it. No file from LUMI was seen: ROCm's torch tags
--- devices `cuda` too, and tags are ignored here.
---
--- Does: takes the newest step that has all its ranks, of the latest job that saved it; folders of
--- saves under way (-tmp) and steps that lost files are passed over.
--- I/O on Lustre: `--io pread` (what `auto` takes there; mapping faults page by page over the
--- network), a stripe count for OUT's folder before the run (`lfs setstripe -c 8`), and few large
--- files rather than explode's many: files count against the quota.
local ranks = require("formats.rank-files")
local steps = require("ckptflow.steps")

local PATTERNS = { "{job}/step{step}/rank{rank}.pt", "step{step}/rank{rank}.pt" }

---@type ckptflow.Format
return {
  api = 1,
  about = "LUMI: <job>/step<N>/rank<R>.pt, the newest whole step",
  roles = ranks.roles,
  apart = true,

  detect = function(dir)
    local list = steps.list(dir, table.unpack(PATTERNS))
    if #list > 0 then
      return 65, ("a run of %d step%s"):format(#list, #list > 1 and "s" or "")
    end
  end,

  files = function(dir)
    return steps.whole(dir, table.unpack(PATTERNS)).files
  end,

  read = ranks.read,
}
