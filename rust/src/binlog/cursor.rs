//! The only way in which bytes of a log are read: every read is checked against what is left.

use super::fault::{Fault, Read};

#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn left(&self) -> usize {
        self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Everything that is left; the cursor is at its end then.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(Fault::short(N, self.rest.len()));
        };
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub fn bytes(&mut self, count: usize) -> Read<&'a [u8]> {
        let Some((head, rest)) = self.rest.split_at_checked(count) else {
            return Err(Fault::short(count, self.rest.len()));
        };
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub fn skip(&mut self, count: usize) -> Read<()> {
        self.bytes(count).map(|_| ())
    }

    #[inline]
    pub fn u8(&mut self) -> Read<u8> {
        self.array::<1>().map(u8::from_le_bytes)
    }

    #[inline]
    pub fn u16(&mut self) -> Read<u16> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub fn u24(&mut self) -> Read<u32> {
        let [a, b, c] = self.array()?;
        Ok(u32::from_le_bytes([a, b, c, 0]))
    }

    #[inline]
    pub fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub fn u48(&mut self) -> Read<u64> {
        let (low, high) = (self.u32()?, self.u16()?);
        Ok(u64::from(low) | u64::from(high) << 32)
    }

    #[inline]
    pub fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// An unsigned little-endian number of `width` bytes, 8 at most.
    #[inline]
    pub fn le(&mut self, width: usize) -> Read<u64> {
        Ok(self.bytes(width)?.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    /// An unsigned big-endian number of `width` bytes, 8 at most.
    #[inline]
    pub fn be(&mut self, width: usize) -> Read<u64> {
        Ok(self.bytes(width)?.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    /// Bytes behind their length, which is a little-endian number of `W` bytes.
    #[inline]
    pub fn prefixed<const W: usize>(&mut self) -> Read<&'a [u8]> {
        let length = self.array::<W>()?.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte));
        self.bytes(length)
    }

    /// A length of `width` bytes, little-endian.
    pub fn length(&mut self, width: usize) -> Read<usize> {
        let length = self.le(width)?;
        usize::try_from(length).map_err(|_| Fault::corrupt(format!("a length of {length} bytes")))
    }

    /// `MySQL`'s length-encoded integer: one byte up to 250, else 252, 253 or 254 and 2, 3 or 8 bytes.
    pub fn lenenc(&mut self) -> Read<u64> {
        match self.u8()? {
            0xfc => self.le(2),
            0xfd => self.le(3),
            0xfe => self.le(8),
            byte @ (0xfb | 0xff) => Err(Fault::corrupt(format!("{byte} does not begin a length"))),
            byte => Ok(u64::from(byte)),
        }
    }

    /// A length-encoded integer that counts things in memory.
    pub fn lenenc_size(&mut self) -> Read<usize> {
        let size = self.lenenc()?;
        usize::try_from(size).map_err(|_| Fault::corrupt(format!("a count of {size}")))
    }

    pub fn lenenc_bytes(&mut self) -> Read<&'a [u8]> {
        let size = self.lenenc_size()?;
        self.bytes(size)
    }
}

/// Bit `index` of a bitmap whose first bit is the lowest of its first byte; bits beyond its end are 0.
#[inline]
pub fn bit(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_bounds_checked() {
        let mut cursor = Cursor::new(&[1, 2, 3]);
        assert_eq!(cursor.u16().ok(), Some(0x0201));
        assert!(cursor.u16().is_err());
        assert!(cursor.bytes(usize::MAX).is_err());
        assert_eq!(cursor.u8().ok(), Some(3));
        assert!(cursor.is_empty());
    }

    #[test]
    fn length_encoded_integers() {
        for (bytes, value) in [
            (&[250][..], 250),
            (&[0xfc, 1, 2], 0x0201),
            (&[0xfd, 1, 2, 3], 0x03_0201),
            (&[0xfe, 1, 0, 0, 0, 0, 0, 0, 0x80], 0x8000_0000_0000_0001),
        ] {
            assert_eq!(Cursor::new(bytes).lenenc().ok(), Some(value));
        }
        assert!(Cursor::new(&[0xfb]).lenenc().is_err());
        assert!(Cursor::new(&[0xfe, 1]).lenenc().is_err());
    }
}
