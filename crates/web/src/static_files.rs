//! Files of a directory, answered without the application.
//!
//! A GET or HEAD without a body whose path names a regular file below the root is answered here;
//! every other request goes to the application, so that no 404 comes from here.
//!
//! On the IO thread only what the kernel has in memory is used: a lookup that would wait for the disk
//! (`RESOLVE_CACHED`), and the first read of a small file that would (`RWF_NOWAIT`), is done again on
//! one of the few threads that wait for the disk. What is found is kept for a time, by the path of the
//! request; then the file is opened again, and its content is read again only if its device, inode,
//! length or times have changed. Large files are opened for each request and sent by the kernel. Of a
//! remote file system (NFS, FUSE) all files are opened and read on those threads.

mod cache;
mod file_name;
mod fingerprint;
mod resource;
mod root;

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::body_part::BodyPart;
use crate::content_coding::{AcceptedCodings, ContentCoding};
use crate::date::http_date;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::file_answer::{append_range, select};
use crate::media_type;
use crate::path_patterns::is_among;
use crate::preconditions::is_dated;
use crate::request_body::RequestBody;
use crate::response_head::{
    BodySize, ResponseContext, ResponseError, ResponseFraming, ResponseHead,
};
use crate::static_settings::StaticSettings;

use cache::ResourceCache;
use file_name::FileName;
use resource::{Representation, Resource};
pub use root::open_below;
use root::{NoFile, RootDirectory, StaticFileStamp};

/// Content up to this size is sent in one buffer with the head.
const COPIED_BYTES_MAX: u64 = 16 * 1024;

/// Of files whose name changes with their content.
const IMMUTABLE: &[u8] = b"public, max-age=31536000, immutable";

/// What a file without a known type is.
const UNKNOWN_TYPE: &str = "text/plain";

/// Headers that only the server knows.
const OWN_HEADERS: [&str; 9] = [
    "accept-ranges",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "connection",
    "etag",
    "last-modified",
    "transfer-encoding",
];

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StaticOutcome {
    /// It has its response.
    Answered,
    /// It is for the application.
    Missing,
    /// Ask again from a thread that may wait for the disk.
    MustWait,
}

/// Serves the files of a directory.
pub(crate) struct StaticFiles {
    settings: StaticSettings,
    root: RootDirectory,
    cache: Mutex<ResourceCache>,
    /// The headers of the settings have a `Cache-Control`.
    has_cache_control: bool,
}

impl StaticFiles {
    pub fn open(mut settings: StaticSettings) -> Result<Self, Error> {
        settings
            .headers
            .retain(|(name, _)| !OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)));
        let named = |(name, _): &(String, String)| name.eq_ignore_ascii_case("cache-control");
        Ok(Self {
            root: RootDirectory::open(&settings.root)?,
            cache: Mutex::new(ResourceCache::new(settings.memory_bytes_max, settings.fresh)),
            has_cache_control: settings.headers.iter().any(named),
            settings,
        })
    }

    /// Answers a request if it is for a file. With `may_wait` false it does not wait for the disk.
    pub fn answer(&self, exchange: &Arc<Exchange>, may_wait: bool) -> StaticOutcome {
        match self.find_and_respond(exchange, may_wait) {
            Ok(()) => StaticOutcome::Answered,
            Err(NoFile::Missing) => StaticOutcome::Missing,
            Err(NoFile::MustWait) => StaticOutcome::MustWait,
            // The application would answer as if there were no such file.
            Err(NoFile::NoDescriptor) => {
                Arc::clone(exchange).shed();
                StaticOutcome::Answered
            }
        }
    }

    fn find_and_respond(&self, exchange: &Arc<Exchange>, may_wait: bool) -> Result<(), NoFile> {
        let head = exchange.head();
        let method = head.get(head.method);
        let is_plain = (method == b"GET" || method == b"HEAD")
            && matches!(exchange.body(), RequestBody::Empty)
            && (!self.settings.https_only
                || exchange.is_https()
                || is_among(head.get(head.path), &self.settings.https_only_except));
        if !is_plain {
            return Err(NoFile::Missing);
        }
        let (path, now) = (head.get(head.path), exchange.received_at());
        let known = self.cache.lock().get(path, now);
        let mut resource = match known {
            Some((resource, true)) => resource,
            known => self.find(path, known.map(|(old, _)| old), now, may_wait)?,
        };
        let accepted = AcceptedCodings::of(head);
        let mut chosen = resource.choose(accepted);
        let mut file = self.file_of(chosen, may_wait)?;
        if matches!(file, Content::Changed) {
            resource = self.find(path, None, now, may_wait)?;
            chosen = resource.choose(accepted);
            file = self.file_of(chosen, may_wait)?;
        }
        if matches!(file, Content::Changed) {
            // It changes all the time; the application may know more.
            return Err(NoFile::Missing);
        }
        self.respond(exchange, &resource, chosen, file).map_err(|_| NoFile::Missing)
    }

    /// Looks for the file that a path names, and keeps what it finds.
    fn find(
        &self,
        path: &[u8],
        old: Option<Arc<Resource>>,
        now: Instant,
        may_wait: bool,
    ) -> Result<Arc<Resource>, NoFile> {
        let found = self.load(path, old.as_deref(), may_wait).map(Arc::new);
        let mut cache = self.cache.lock();
        match &found {
            Ok(resource) => cache.insert(path, resource, now),
            Err(NoFile::Missing) => cache.remove(path),
            Err(NoFile::MustWait | NoFile::NoDescriptor) => {}
        }
        found
    }

    fn load(
        &self,
        path: &[u8],
        old: Option<&Resource>,
        may_wait: bool,
    ) -> Result<Resource, NoFile> {
        let named = file_name::parse(path).ok_or(NoFile::Missing)?;
        for name in self.candidates(&named) {
            match self.root.file(&name, may_wait) {
                Ok((file, stamp)) => return self.resource(name, file, stamp, old, may_wait),
                Err(NoFile::Missing) => {}
                Err(unknown) => return Err(unknown),
            }
        }
        Err(NoFile::Missing)
    }

    /// The names of files that a path may mean, the first one first.
    fn candidates(&self, named: &FileName) -> Vec<String> {
        let FileName { name, is_directory } = named;
        let separator = if name.is_empty() { "" } else { "/" };
        let index = self.settings.index.iter().map(|index| format!("{name}{separator}{index}"));
        if *is_directory && (name.is_empty() || !self.settings.html) {
            return index.collect();
        }
        let itself = std::iter::once(name.clone());
        if self.settings.html && self.type_of(name).is_none() {
            return itself.chain([format!("{name}.html")]).chain(index).collect();
        }
        itself.collect()
    }

    fn type_of(&self, name: &str) -> Option<&String> {
        let file = name.rsplit('/').next().unwrap_or_default();
        let dot = file.rfind('.').filter(|dot| *dot > 0)?;
        self.settings.types.get(&file[dot..].to_ascii_lowercase())
    }

    /// A file that was found, with its compressed forms.
    fn resource(
        &self,
        name: String,
        file: File,
        stamp: StaticFileStamp,
        old: Option<&Resource>,
        may_wait: bool,
    ) -> Result<Resource, NoFile> {
        let content_type = self.type_of(&name).map_or(UNKNOWN_TYPE, String::as_str).to_owned();
        let is_fingerprinted = fingerprint::is_fingerprinted(&name);
        let mut representations = Vec::new();
        if media_type::is_compressible(content_type.as_bytes()) {
            for coding in ContentCoding::ALL {
                let name = format!("{name}{}", coding.suffix());
                match self.root.file(&name, may_wait) {
                    Ok((file, stamp)) => {
                        let coded = Representation::new(Some(coding), name, stamp);
                        representations.push(self.with_bytes(coded, &file, old, may_wait)?);
                    }
                    Err(NoFile::Missing) => {}
                    Err(unknown) => return Err(unknown),
                }
            }
        }
        let itself = Representation::new(None, name, stamp);
        representations.insert(0, self.with_bytes(itself, &file, old, may_wait)?);
        Ok(Resource { content_type, is_fingerprinted, representations })
    }

    /// With its content, if it is small: what is in memory, unless the file has changed.
    fn with_bytes(
        &self,
        new: Representation,
        file: &File,
        old: Option<&Resource>,
        may_wait: bool,
    ) -> Result<Representation, NoFile> {
        if new.stamp.len > self.settings.file_bytes_max {
            return Ok(new);
        }
        let same = old.and_then(|old| old.representation(new.coding));
        let same = same.filter(|same| same.stamp == new.stamp && same.name == new.name);
        if let Some(same) = same.filter(|same| same.bytes.is_some()) {
            return Ok(new.with_content_of(same));
        }
        Ok(match root::read(file, &new.stamp, may_wait)? {
            Some(bytes) => new.with_content(bytes.into()),
            None => new,
        })
    }

    fn file_of(&self, chosen: &Representation, may_wait: bool) -> Result<Content, NoFile> {
        if let Some(bytes) = &chosen.bytes {
            return Ok(Content::Memory(Arc::clone(bytes)));
        }
        match self.root.file(&chosen.name, may_wait) {
            Ok((file, stamp)) if stamp == chosen.stamp => Ok(Content::File(file)),
            Err(unknown @ (NoFile::MustWait | NoFile::NoDescriptor)) => Err(unknown),
            _ => Ok(Content::Changed),
        }
    }

    fn respond(
        &self,
        exchange: &Arc<Exchange>,
        resource: &Resource,
        chosen: &Representation,
        content: Content,
    ) -> Result<(), ResponseError> {
        let (head, len) = (exchange.head(), chosen.stamp.len);
        let (status, part) = select(head, chosen.validators(), len);
        let context = ResponseContext { timing: None, ..exchange.response_context(None) };
        let mut out = ResponseHead::new(exchange.take_buffer(), status, &context)?;
        if matches!(status, 200 | 206) {
            out.header(b"Content-Type", resource.content_type.as_bytes())?;
            out.header(b"Accept-Ranges", b"bytes")?;
            if let Some(coding) = chosen.coding {
                out.header(b"Content-Encoding", coding.name().as_bytes())?;
            }
        }
        append_range(&mut out, status, &part, len)?;
        if matches!(status, 200 | 206 | 304) {
            self.append_caching(&mut out, resource, chosen)?;
        }
        for (name, value) in &self.settings.headers {
            if !self.has_header(name, status, exchange) {
                continue;
            }
            out.header(name.as_bytes(), value.as_bytes())?;
        }
        let len = part.end - part.start;
        let mut head = out.finish(BodySize::Known(len))?;
        let has_body = len > 0 && head.framing != ResponseFraming::None;
        let tail = match content {
            _ if !has_body => None,
            Content::Memory(bytes) if len <= COPIED_BYTES_MAX => {
                head.bytes.extend_from_slice(&bytes[part.start as usize..part.end as usize]);
                None
            }
            content => content.part(part),
        };
        Arc::clone(exchange).complete(head, tail);
        Ok(())
    }

    /// Whether a header of the settings belongs to an answer.
    fn has_header(&self, name: &str, status: u16, exchange: &Exchange) -> bool {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        // A cache that kept an error would give it to clients that sent no such condition or range.
        if matches!(status, 412 | 416) && (is("cache-control") || is("expires")) {
            return false;
        }
        // RFC 6797 section 7.2: not over plain HTTP.
        let is_plain = || self.settings.https_only && !exchange.is_https();
        !(is("strict-transport-security") && is_plain())
    }

    fn append_caching(
        &self,
        out: &mut ResponseHead<'_>,
        resource: &Resource,
        chosen: &Representation,
    ) -> Result<(), ResponseError> {
        let validators = chosen.validators();
        if is_dated(validators.modified_s) {
            out.header(b"Last-Modified", &http_date(validators.modified_s))?;
        }
        if !validators.etag.is_empty() {
            out.header(b"ETag", validators.etag)?;
        }
        if resource.representations.len() > 1 {
            out.header(b"Vary", b"Accept-Encoding")?;
        }
        if self.has_cache_control {
            return Ok(());
        }
        if resource.is_fingerprinted {
            return out.header(b"Cache-Control", IMMUTABLE);
        }
        match &self.settings.cache_control {
            Some(value) => out.header(b"Cache-Control", value.as_bytes()),
            None => Ok(()),
        }
    }
}

/// Where the content of a representation is.
enum Content {
    Memory(Arc<[u8]>),
    File(File),
    /// The file is not the one that was found before.
    Changed,
}

impl Content {
    fn part(self, range: std::ops::Range<u64>) -> Option<BodyPart> {
        let len = range.end - range.start;
        match self {
            Self::Memory(bytes) => {
                let range = range.start as usize..range.end as usize;
                Some(BodyPart::Pinned(Box::new(PartOfFile { bytes, range })))
            }
            Self::File(file) => Some(BodyPart::File { file, offset: range.start, len }),
            Self::Changed => None,
        }
    }
}

/// A part of a file that is kept in memory.
struct PartOfFile {
    bytes: Arc<[u8]>,
    range: std::ops::Range<usize>,
}

impl AsRef<[u8]> for PartOfFile {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

#[cfg(test)]
mod tests;
