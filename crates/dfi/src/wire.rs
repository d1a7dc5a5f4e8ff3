//! Fields of registry messages: little-endian numbers, and texts and lists with their length in
//! front.

use millstream_fabric::setup::SetupError;

/// Result of reading a field that anybody may have written.
pub(crate) type Read<T> = std::result::Result<T, SetupError>;

/// A field that does not fit.
pub(crate) fn malformed<T>(what: &'static str) -> Read<T> {
    Err(SetupError::Field { what })
}

/// Rest of a message.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let Some((head, rest)) = self.0.split_first_chunk::<N>() else {
            return malformed("it ends too early");
        };
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn size(&mut self) -> Read<usize> {
        usize::try_from(self.u64()?).or(malformed("a number beyond the address space"))
    }

    pub(crate) fn text(&mut self) -> Read<String> {
        let bytes = self.u32()? as usize;
        let Some((head, rest)) = self.0.split_at_checked(bytes) else {
            return malformed("a text ends too early");
        };
        self.0 = rest;
        String::from_utf8(head.to_vec()).or(malformed("a text is not UTF-8"))
    }

    /// A list whose elements take at least `bytes` bytes each: a false length allocates nothing.
    pub(crate) fn list<T>(
        &mut self,
        bytes: usize,
        mut element: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        let count = self.u32()? as usize;
        if count > self.0.len() / bytes.max(1) {
            return malformed("a list ends too early");
        }
        (0..count).map(|_| element(self)).collect()
    }

    pub(crate) fn end(&self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { malformed("it is too long") }
    }
}

/// Appends fields to a message.
pub(crate) trait Put {
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_text(&mut self, text: &str);
    fn put_list<T>(&mut self, list: &[T], element: impl FnMut(&mut Self, &T));
}

impl Put for Vec<u8> {
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_text(&mut self, text: &str) {
        self.put_u32(text.len() as u32);
        self.extend_from_slice(text.as_bytes());
    }

    fn put_list<T>(&mut self, list: &[T], mut element: impl FnMut(&mut Self, &T)) {
        self.put_u32(list.len() as u32);
        for one in list {
            element(self, one);
        }
    }
}
