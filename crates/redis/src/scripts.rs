//! Lua scripts, as a connection loads them.

/// The source of one script.
pub struct ScriptSource {
    /// Shared functions that it uses.
    pub uses: &'static [&'static str],
    /// Its own text.
    pub body: &'static str,
    /// It adds something and is refused by a full server. All others are allowed
    /// there, so that the server can be drained.
    pub adds: bool,
}

impl ScriptSource {
    /// The script as it is loaded. Since Redis 7 its first line allows it to run on a full server.
    /// Redis 6 starts any script there and stops it at the first command that needs memory, unless
    /// it has written before: so it begins with a write that needs no memory and changes nothing.
    pub fn text(&self, shebang: bool) -> String {
        let first = match (shebang, self.adds) {
            (true, true) => "#!lua\n",
            (true, false) => "#!lua flags=allow-oom\n",
            (false, true) => "",
            (false, false) => "redis.call('UNLINK', 'chaton:none')\n",
        };
        format!("{first}{}{}", self.uses.concat(), self.body)
    }
}
