//! The keys of session tickets, with which a client continues a session at any worker.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_256_GCM, NONCE_LEN};
use ring::hkdf::{Prk, HKDF_SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;

/// Bytes of the secret that all workers share.
const SECRET_BYTES: usize = 32;
/// Bytes of the number of the key, before the nonce.
const NUMBER_BYTES: usize = size_of::<u64>();

/// What the keys are made from.
#[derive(Clone, Copy)]
pub(crate) struct TicketSecret {
    /// All workers have the same.
    pub bytes: [u8; SECRET_BYTES],
    /// Time for which a key is used; its tickets are accepted as long again.
    pub period: Duration,
}

impl TicketSecret {
    /// Of the memory that workers share; of a process that shares none, random bytes.
    pub fn new(shared: Option<[u8; SECRET_BYTES]>, period: Duration) -> Self {
        let bytes = shared.unwrap_or_else(|| {
            let mut bytes = [0; SECRET_BYTES];
            SystemRandom::new().fill(&mut bytes).expect("the operating system has random bytes");
            bytes
        });
        Self { bytes, period }
    }
}

/// A key, with its number.
type NumberedKey = (u64, Arc<LessSafeKey>);

/// One key after the other, each made from a shared secret and the time. Workers that have the same
/// secret use the same keys without asking each other.
///
/// A ticket is the number of its key, a nonce, and the encrypted session.
pub(crate) struct TicketKeys {
    secret: Prk,
    /// Others with the same secret do not read these tickets.
    binding: Vec<u8>,
    period: Duration,
    random: SystemRandom,
    /// The keys that were used last.
    known: Mutex<[Option<NumberedKey>; 2]>,
}

impl TicketKeys {
    pub fn new(secret: TicketSecret, binding: &[u8]) -> Self {
        let TicketSecret { bytes, period } = secret;
        let secret = Prk::new_less_safe(HKDF_SHA256, &bytes);
        let (binding, random) = (binding.to_vec(), SystemRandom::new());
        Self { secret, binding, period, random, known: Mutex::default() }
    }

    /// The number of the key that encrypts now.
    fn current(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_secs() / self.period.as_secs().max(1)
    }

    fn key(&self, number: u64) -> Option<Arc<LessSafeKey>> {
        let mut known = self.known.lock();
        let place = &mut known[(number % 2) as usize];
        if let Some((_, key)) = place.as_ref().filter(|(of, _)| *of == number) {
            return Some(Arc::clone(key));
        }
        let number_bytes = number.to_be_bytes();
        let info = [b"chaton session ticket".as_slice(), &number_bytes, &self.binding];
        let key = UnboundKey::from(self.secret.expand(&info, &AES_256_GCM).ok()?);
        let key = Arc::new(LessSafeKey::new(key));
        *place = Some((number, Arc::clone(&key)));
        Some(key)
    }
}

impl TicketKeys {
    fn encrypt_with(&self, number: u64, session: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut ticket = [&number.to_be_bytes()[..], &nonce, session].concat();
        let (named, sealed) = ticket.split_at_mut(NUMBER_BYTES + NONCE_LEN);
        let aad = Aad::from(&named[..NUMBER_BYTES]);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key(number)?.seal_in_place_separate_tag(nonce, aad, sealed).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    /// Decrypts a ticket of the current key or of the one before it.
    fn decrypt_at(&self, current: u64, ticket: &[u8]) -> Option<Vec<u8>> {
        let (number, rest) = ticket.split_first_chunk::<NUMBER_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let of = u64::from_be_bytes(*number);
        if of != current && of.checked_add(1) != Some(current) {
            return None;
        }
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let len = self.key(of)?.open_in_place(nonce, Aad::from(number), &mut sealed).ok()?.len();
        sealed.truncate(len);
        Some(sealed)
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.period.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_with(self.current(), session)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(self.current(), ticket)
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").field("period", &self.period).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(byte: u8, binding: &[u8]) -> TicketKeys {
        let secret = TicketSecret::new(Some([byte; SECRET_BYTES]), Duration::from_secs(1));
        TicketKeys::new(secret, binding)
    }

    fn keys(byte: u8) -> TicketKeys {
        bound(byte, b"rules")
    }

    #[test]
    fn workers_with_the_same_secret_read_each_others_tickets() {
        let ticket = keys(1).encrypt_with(7, b"session").unwrap();
        assert_eq!(keys(1).decrypt_at(7, &ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(keys(2).decrypt_at(7, &ticket), None);
        assert_eq!(bound(1, b"others").decrypt_at(7, &ticket), None);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(keys(1).decrypt_at(7, &changed), None);
            assert_eq!(keys(1).decrypt_at(7, &ticket[..at]), None);
        }
    }

    #[test]
    fn a_ticket_outlives_its_key_by_one_period() {
        let keys = keys(1);
        let ticket = keys.encrypt_with(7, b"session").unwrap();
        let readable = |current| keys.decrypt_at(current, &ticket).is_some();
        assert_eq!([6, 7, 8, 9].map(readable), [false, true, true, false]);
        assert!(keys.decrypt_at(0, &[0xff; 100]).is_none());
    }
}
