//! The settings of static files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use chaton_core::settings::seconds;
use serde::Deserialize;

/// The settings of static files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticSettings {
    /// The directory, an absolute path.
    pub root: PathBuf,
    /// The file that stands for a directory.
    pub index: Option<String>,
    /// Whether a path without a known extension also means the file with `.html`, and the index of
    /// the directory, as in Rails.
    pub html: bool,
    /// Answer only requests that came over HTTPS, here or with a proxy in front.
    pub https_only: bool,
    /// Paths that are answered over plain HTTP in spite of it, as in [`crate::Config::stream_bodies`].
    pub https_only_except: Vec<String>,
    /// Headers of every answer.
    pub headers: Vec<(String, String)>,
    /// `Cache-Control` of files without a digest in their name, unless `headers` have one.
    pub cache_control: Option<String>,
    /// Bytes of all files kept in memory.
    pub memory_bytes_max: usize,
    /// Larger files are not kept in memory.
    pub file_bytes_max: u64,
    /// For so long a file is served as it was found.
    #[serde(rename = "fresh_s", deserialize_with = "seconds")]
    pub fresh: Duration,
    /// `Content-Type` by extension: `.css` → `text/css`.
    pub types: HashMap<String, String>,
}

#[cfg(any(test, feature = "test-support"))]
impl StaticSettings {
    /// What tests use: nothing is believed without a look at the disk.
    pub fn for_tests(root: impl Into<PathBuf>) -> Self {
        let types = [(".css", "text/css"), (".html", "text/html"), (".png", "image/png")];
        Self {
            root: root.into(),
            index: None,
            html: false,
            https_only: false,
            https_only_except: Vec::new(),
            headers: Vec::new(),
            cache_control: None,
            memory_bytes_max: 1 << 20,
            file_bytes_max: 64 * 1024,
            fresh: Duration::ZERO,
            types: types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).into(),
        }
    }
}
