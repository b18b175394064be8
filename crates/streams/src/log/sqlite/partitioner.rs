//! Chooses the partition of a key like Kafka's Java client (murmur2, seed 0x9747b28c, without the
//! sign bit), so that a topic that moves to Kafka keeps its keys in their partitions.

/// Kafka's `Utils.murmur2`.
pub(super) fn murmur2(data: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c_u32 ^ data.len() as u32;
    let mut fours = data.chunks_exact(4);
    for four in &mut fours {
        let mut k = u32::from_le_bytes([four[0], four[1], four[2], four[3]]).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = fours.remainder();
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

pub(super) fn partition_of(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of Kafka's `UtilsTest.testMurmur2`.
    #[test]
    fn hashes_equal_those_of_kafka() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn a_partition_is_never_negative() {
        for number in 0..1000 {
            let key = format!("key {number}");
            assert!((0..7).contains(&partition_of(key.as_bytes(), 7)));
        }
        assert_eq!(partition_of(b"foobar", 1), 0);
        assert_eq!(partition_of(b"foobar", 10), (-790_332_482i32 & 0x7fff_ffff) % 10);
    }
}
