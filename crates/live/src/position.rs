//! The id of an event: a signed position, with which a client comes back without asking the application again.
//!
//! It is the base64url of: version, epoch, offset, expiry, end of the permission, digest of the request, names, and a
//! MAC (HMAC-SHA256, cut to 16 bytes) of all that. The key comes from the file of the log, so that all processes of it
//! know it. The names can be read by the client, who could ask for them by name before.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use ring::{digest, hmac};

use crate::row::Position;

/// Longest id that is looked at, and that is given.
pub(crate) const ID_BYTES_MAX: usize = 256;
/// Time for which a client comes back without the application.
const VALID: Duration = Duration::from_secs(600);
/// Bytes before the names.
const HEAD_BYTES: usize = 1 + 8 + 8 + 4 + 4 + DIGEST_BYTES;
const MAC_BYTES: usize = 16;
const DIGEST_BYTES: usize = 8;
/// What fits beside the rest into an id.
const NAMES_BYTES_MAX: usize = ID_BYTES_MAX / 4 * 3 - HEAD_BYTES - MAC_BYTES;
/// The first byte: the names follow.
const WITH_NAMES: u8 = 1;
/// The first byte: a digest of the names follows, with which only the application can let the client in.
const WITHOUT_NAMES: u8 = 2;

/// A bit of the first byte: see [`Ticket::refreshes`].
const REFRESHES: u8 = 4;

/// What is the same in all ids of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    version: u8,
    names: Box<[u8]>,
    request: RequestDigest,
    /// When the application has to be asked again (s since 1970).
    pub until: u32,
}

/// A digest of what the application has decided by: the address, and who the client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDigest([u8; DIGEST_BYTES]);

impl RequestDigest {
    /// Of these parts of a request, in this order.
    pub fn new<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        Self(first_bytes(context.finish().as_ref()))
    }
}

fn first_bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    first.copy_from_slice(&bytes[..N]);
    first
}

impl Ticket {
    pub fn new(names: &[Arc<str>], request: RequestDigest, max_age: Option<Duration>) -> Self {
        let until = max_age.map_or(u32::MAX, |age| {
            now_s().saturating_add(u32::try_from(age.as_secs()).unwrap_or(u32::MAX))
        });
        let joined = names.join("\n");
        let (version, names) = match joined.len() <= NAMES_BYTES_MAX {
            true => (WITH_NAMES, joined.into_bytes()),
            false => (WITHOUT_NAMES, digest_of(&joined).to_vec()),
        };
        Self { version, names: names.into(), request, until }
    }

    /// Whether the client's page is to be loaded again at a gap.
    pub fn refreshes(&self) -> bool {
        self.version & REFRESHES != 0
    }

    pub fn set_refreshes(&mut self, refreshes: bool) {
        if refreshes {
            self.version |= REFRESHES;
        }
    }

    /// How long the permission lasts.
    pub fn time_left(&self) -> Option<Duration> {
        let left = self.until.saturating_sub(now_s());
        (self.until != u32::MAX).then(|| Duration::from_secs(left.into()))
    }
}

fn digest_of(names: &str) -> [u8; DIGEST_BYTES] {
    first_bytes(digest::digest(&digest::SHA256, names.as_bytes()).as_ref())
}

/// An id that is genuine.
#[derive(Debug)]
pub(crate) struct Verified {
    pub position: Position,
    pub names: Vec<Arc<str>>,
    pub ticket: Ticket,
}

/// Signs the positions of one log.
pub(crate) struct Signer {
    pub epoch: u64,
    key: hmac::Key,
}

impl Signer {
    pub fn new(epoch: u64, secret: &[u8]) -> Self {
        // One key for each use of the secret.
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let key = hmac::sign(&secret, b"position of an event stream");
        Self { epoch, key: hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()) }
    }

    /// Adds the id of a message with this offset.
    pub fn append_id(&self, ticket: &Ticket, offset: u64, out: &mut Vec<u8>) {
        let mut bytes = [0u8; ID_BYTES_MAX / 4 * 3];
        let expiry = now_s().saturating_add(VALID.as_secs() as u32).min(ticket.until);
        let parts: [&[u8]; 7] = [
            &[ticket.version],
            &self.epoch.to_be_bytes(),
            &offset.to_be_bytes(),
            &expiry.to_be_bytes(),
            &ticket.until.to_be_bytes(),
            &ticket.request.0,
            &ticket.names,
        ];
        let mut len = 0;
        for part in parts {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        let mac = hmac::sign(&self.key, &bytes[..len]);
        bytes[len..len + MAC_BYTES].copy_from_slice(&mac.as_ref()[..MAC_BYTES]);
        encode(&bytes[..len + MAC_BYTES], out);
    }

    /// The position of an id that this log has given, if it has not expired and belongs to this request.
    pub fn verify(&self, id: &[u8], request: RequestDigest) -> Option<Verified> {
        let bytes = self.genuine(id)?;
        let (head, names) = bytes[..bytes.len() - MAC_BYTES].split_at(HEAD_BYTES);
        let expiry = u32::from_be_bytes(first_bytes(&head[17..]));
        let until = u32::from_be_bytes(first_bytes(&head[21..]));
        let is_valid = head[0] & !REFRESHES == WITH_NAMES
            && now_s() < expiry
            && request == RequestDigest(first_bytes(&head[25..]));
        let text = std::str::from_utf8(names).ok().filter(|_| is_valid)?;
        let ticket = Ticket { version: head[0], names: names.into(), request, until };
        let names = text.split('\n').map(Arc::from).collect();
        Some(Verified { position: position_of(head), names, ticket })
    }

    /// The position of an id of these names, for a client that the application has let in.
    pub fn position(&self, id: &[u8], names: &[Arc<str>]) -> Option<Position> {
        let bytes = self.genuine(id)?;
        let (head, own) = bytes[..bytes.len() - MAC_BYTES].split_at(HEAD_BYTES);
        let joined = names.join("\n");
        let is_same = match head[0] & !REFRESHES {
            WITH_NAMES => own == joined.as_bytes(),
            _ => own == digest_of(&joined),
        };
        is_same.then(|| position_of(head))
    }

    /// The bytes of an id that was signed with this key.
    fn genuine(&self, id: &[u8]) -> Option<Vec<u8>> {
        let bytes = decode(id).filter(|bytes| bytes.len() >= HEAD_BYTES + MAC_BYTES)?;
        let (signed, mac) = bytes.split_at(bytes.len() - MAC_BYTES);
        let expected = hmac::sign(&self.key, signed);
        // In constant time.
        let differs = expected.as_ref().iter().zip(mac).fold(0, |all, (a, b)| all | (a ^ b));
        (differs == 0).then_some(bytes)
    }
}

fn position_of(head: &[u8]) -> Position {
    let number = |at: usize| u64::from_be_bytes(first_bytes(&head[at..]));
    Position { epoch: number(1), offset: number(9) }
}

fn now_s() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX - 1)
}

fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + ID_BYTES_MAX, 0);
    // What is signed fits.
    let len = URL_SAFE_NO_PAD.encode_slice(bytes, &mut out[begin..]).unwrap_or(0);
    out.truncate(begin + len);
}

fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let is_short = text.len() <= ID_BYTES_MAX;
    is_short.then(|| URL_SAFE_NO_PAD.decode(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn id(signer: &Signer, ticket: &Ticket, offset: u64) -> Vec<u8> {
        let mut id = Vec::new();
        signer.append_id(ticket, offset, &mut id);
        id
    }

    #[test]
    fn only_the_same_request_in_time_is_let_in() {
        let (signer, other) = (Signer::new(7, &[1; 32]), Signer::new(7, &[2; 32]));
        let (mine, yours) =
            (RequestDigest::new([&b"/a"[..], b"me"]), RequestDigest::new([&b"/a"[..]]));
        let names = names(&["orders/7", "user/1"]);
        let ticket = Ticket::new(&names, mine, None);
        let good = id(&signer, &ticket, 1234);
        let verified = signer.verify(&good, mine).unwrap();
        assert_eq!(verified.position, Position { epoch: 7, offset: 1234 });
        assert_eq!(verified.names, names);
        assert!(signer.verify(&good, yours).is_none() && other.verify(&good, mine).is_none());
        assert_eq!(signer.position(&good, &names), Some(verified.position));
        assert!(signer.position(&good, &names[..1]).is_none());
        // Every change of a digit is noticed.
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] = if bad[at] == b'B' { b'C' } else { b'B' };
            let changed = decode(&bad) != decode(&good);
            assert_eq!(signer.verify(&bad, mine).is_none(), changed, "{at}");
        }
        for bad in [&b""[..], b"AAAA", b"=", &[b'A'; 257], &good[..good.len() - 1]] {
            assert!(signer.verify(bad, mine).is_none());
        }
        let mut refreshes = Ticket::new(&names, mine, None);
        refreshes.set_refreshes(true);
        let again = id(&signer, &refreshes, 5);
        assert!(signer.verify(&again, mine).unwrap().ticket.refreshes());
        assert!(!verified.ticket.refreshes() && signer.position(&again, &names).is_some());
        let expired = Ticket::new(&names, mine, Some(Duration::ZERO));
        let id = id(&signer, &expired, 1);
        assert!(signer.verify(&id, mine).is_none() && signer.position(&id, &names).is_some());
    }

    #[test]
    fn an_id_is_never_too_long() {
        let signer = Signer::new(u64::MAX, &[1; 32]);
        let request = RequestDigest::new([&b"/a"[..]]);
        for len in 1..300 {
            let names = names(&[&"x".repeat(len)]);
            let id = id(&signer, &Ticket::new(&names, request, None), u64::MAX);
            assert!(id.len() <= ID_BYTES_MAX);
            assert_eq!(signer.verify(&id, request).is_some(), len <= NAMES_BYTES_MAX);
            assert_eq!(signer.position(&id, &names).unwrap().offset, u64::MAX);
        }
    }
}
