//! Output of boxes, whose sizes are filled in when a box ends.

use alloc::vec::Vec;

use bytes::Bytes;

/// Big-endian output buffer. Like `wire::Writer`, it truncates values that do not fit their field.
#[derive(Debug, Default)]
pub(crate) struct Out {
    bytes: Vec<u8>,
}

impl Out {
    pub(crate) const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u24(&mut self, value: u32) -> &mut Self {
        let [_, a, b, c] = value.to_be_bytes();
        self.bytes(&[a, b, c])
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(value);
        self
    }

    pub(crate) fn zeros(&mut self, count: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len().saturating_add(count), 0);
        self
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes a box with the contents that `body` writes (ISO/IEC 14496-12 §4.2.2).
    pub(crate) fn boxed(&mut self, kind: &[u8; 4], body: impl FnOnce(&mut Self)) -> &mut Self {
        let at = self.bytes.len();
        self.u32(0).bytes(kind);
        body(self);
        let size = self.bytes.len().saturating_sub(at);
        self.set_u32(at, u32::try_from(size).unwrap_or(u32::MAX));
        self
    }

    /// Writes a full box with version, flags and the contents that `body` writes.
    pub(crate) fn full(
        &mut self,
        kind: &[u8; 4],
        version: u8,
        flags: u32,
        body: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.boxed(kind, |out| {
            out.u8(version).u24(flags);
            body(out);
        })
    }

    /// Replaces the four bytes at `at`.
    pub(crate) fn set_u32(&mut self, at: usize, value: u32) {
        if let Some(field) = self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
            *field = value.to_be_bytes();
        }
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes.into()
    }
}
