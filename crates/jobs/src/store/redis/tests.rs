//! The cases that every store must pass, each on a server of its own.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::store::conformance::conformance;
use crate::store::*;

/// Longest time a server takes to start.
const START: Duration = Duration::from_secs(20);

/// A kit that ends its server when it is dropped.
struct OwnKit {
    kit: Arc<dyn Kit>,
    child: Child,
    _dir: tempfile::TempDir,
}

impl Kit for OwnKit {
    fn store(&self) -> Box<dyn Store> {
        self.kit.store()
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.kit.watch()
    }

    fn address(&self) -> &str {
        self.kit.address()
    }
}

impl Drop for OwnKit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fresh() -> Arc<dyn Kit> {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let child = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--unixsocket", socket.to_str().unwrap()])
        .args(["--dir", dir.path().to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server must be installed");
    let url = format!("unix://{}?db=0", socket.display());
    let kit = Arc::new(OwnKit { kit: open(&StoreOptions::new(url)).unwrap(), child, _dir: dir });
    let began = Instant::now();
    while kit.store().stats().is_err() {
        assert!(began.elapsed() < START, "redis-server does not start");
        std::thread::sleep(Duration::from_millis(2));
    }
    kit
}

conformance!(fresh);
