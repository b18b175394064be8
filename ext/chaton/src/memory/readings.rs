//! `Chaton::Native::Memory.process`, `resident`, `machine`, `cgroup`: the kernel's
//! figures about memory.

use std::path::Path;

use chaton_memory::readings::{self, Cgroup, ProcessMemory, ROOT};
use magnus::{function, prelude::*, Error, RHash, RModule, Ruby};

fn process(ruby: &Ruby, pid: u32) -> Result<Option<RHash>, Error> {
    let Some(usage) = ProcessMemory::read(Path::new(ROOT), pid) else {
        return Ok(None);
    };
    let hash = ruby.hash_new();
    hash.aset(ruby.to_symbol("rss"), usage.rss)?;
    hash.aset(ruby.to_symbol("pss"), usage.pss)?;
    hash.aset(ruby.to_symbol("private"), usage.private)?;
    hash.aset(ruby.to_symbol("shared"), usage.shared)?;
    hash.aset(ruby.to_symbol("swap"), usage.swap)?;
    Ok(Some(hash))
}

fn resident(pid: u32) -> Option<u64> {
    readings::resident(Path::new(ROOT), pid)
}

fn machine() -> Option<u64> {
    readings::machine(Path::new(ROOT))
}

fn cgroup(ruby: &Ruby) -> Result<Option<RHash>, Error> {
    let Some(group) = Cgroup::read(Path::new(ROOT)) else {
        return Ok(None);
    };
    let hash = ruby.hash_new();
    hash.aset(ruby.to_symbol("version"), group.version.number())?;
    hash.aset(ruby.to_symbol("limit"), group.limit)?;
    hash.aset(ruby.to_symbol("current"), group.current)?;
    hash.aset(ruby.to_symbol("path"), group.path.to_string_lossy().into_owned())?;
    Ok(Some(hash))
}

/// Defines these functions.
pub fn define(_ruby: &Ruby, module: RModule) -> Result<(), Error> {
    module.define_singleton_method("process", function!(process, 1))?;
    module.define_singleton_method("resident", function!(resident, 1))?;
    module.define_singleton_method("machine", function!(machine, 0))?;
    module.define_singleton_method("cgroup", function!(cgroup, 0))?;
    Ok(())
}
