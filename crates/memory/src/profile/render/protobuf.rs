//! The part of the protocol buffer encoding that a profile needs: varints, text
//! and nested messages.

/// A message being written.
#[derive(Default)]
pub(super) struct ProtobufMessage(Vec<u8>);

impl ProtobufMessage {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number; zero is the default and is left out.
    pub(super) fn number(&mut self, field: u64, value: u64) -> &mut Self {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
        self
    }

    /// Bytes or text, also if empty, because in a repeated field each element counts.
    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// A packed list of numbers.
    pub(super) fn packed(&mut self, field: u64, values: &[u64]) -> &mut Self {
        let mut list = ProtobufMessage::default();
        values.iter().for_each(|value| list.varint(*value));
        self.bytes(field, &list.0)
    }

    /// A nested message.
    pub(super) fn message(&mut self, field: u64, message: &ProtobufMessage) -> &mut Self {
        self.bytes(field, &message.0)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
