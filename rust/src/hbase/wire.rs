//! How bytes of a WAL are read: every read is checked against what is left, and says whether more bytes would help.

use crate::binlog::fault::Fault;

/// Why an entry was not read to its end.
pub enum Halt {
    /// The bytes end within it: more may come.
    Short,
    /// They are not what was written.
    Bad(Fault),
}

pub type Take<T> = Result<T, Halt>;

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Self::Bad(fault)
    }
}

#[cold]
pub fn bad<T>(message: impl Into<String>) -> Take<T> {
    Err(Halt::Bad(Fault::corrupt(message)))
}

/// What must be whole, because its length said so: an end within it is damage.
pub fn whole<T>(what: &str, taken: Take<T>) -> Take<T> {
    taken.map_err(|halt| match halt {
        Halt::Short => Halt::Bad(Fault::corrupt(format!("{what} is shorter than what is in it"))),
        bad @ Halt::Bad(_) => bad,
    })
}

#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn left(&self) -> usize {
        self.rest.len()
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn take(&mut self, count: usize) -> Take<&'a [u8]> {
        let Some((head, rest)) = self.rest.split_at_checked(count) else { return Err(Halt::Short) };
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Take<[u8; N]> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else { return Err(Halt::Short) };
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub fn u8(&mut self) -> Take<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub fn u16(&mut self) -> Take<u16> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub fn i64(&mut self) -> Take<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A length of four bytes, which is signed in Java.
    #[inline]
    pub fn length(&mut self) -> Take<usize> {
        let length = i32::from_be_bytes(self.array()?);
        usize::try_from(length).or_else(|_| bad(format!("a length of {length}")))
    }

    /// Protobuf's number of variable length: seven bits a byte, lowest first.
    #[inline]
    pub fn varint(&mut self) -> Take<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        bad("a number of more than ten bytes")
    }

    /// A number that counts bytes or things in memory, below 2^31.
    #[inline]
    pub fn size(&mut self) -> Take<usize> {
        let size = self.varint()?;
        match i32::try_from(size).ok().and_then(|size| usize::try_from(size).ok()) {
            Some(size) => Ok(size),
            None => bad(format!("a length of {size}")),
        }
    }
}

/// A field of a protobuf message.
pub enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a fixed width: none that is wanted has it.
    Other,
}

/// The fields of a message in their order; what is in it must be whole.
pub fn fields<'a>(message: &'a [u8], mut each: impl FnMut(u64, Field<'a>) -> Take<()>) -> Take<()> {
    let mut bytes = Bytes::new(message);
    while bytes.left() > 0 {
        let tag = bytes.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(bytes.varint()?),
            1 => bytes.take(8).map(|_| Field::Other)?,
            2 => {
                let size = bytes.size()?;
                Field::Bytes(bytes.take(size)?)
            }
            5 => bytes.take(4).map(|_| Field::Other)?,
            kind => return bad(format!("a field of the unknown wire type {kind}")),
        };
        each(tag >> 3, field)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length() {
        assert_eq!(Bytes::new(&[0xac, 0x02]).varint().ok(), Some(300));
        let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Bytes::new(&minus_one).varint().ok(), Some(u64::MAX));
        assert!(matches!(Bytes::new(&[0x80]).varint(), Err(Halt::Short)));
        assert!(matches!(Bytes::new(&[0xff; 11]).varint(), Err(Halt::Bad(_))));
        assert!(matches!(Bytes::new(&minus_one).size(), Err(Halt::Bad(_))));
    }

    #[test]
    fn a_message_ends_where_it_says() {
        let mut found = Vec::new();
        let read = fields(&[0x08, 0x01, 0x12, 0x02, b'a', b'b', 0x1d, 0, 0, 0, 0], |number, field| {
            found.push((number, matches!(field, Field::Bytes(b"ab"))));
            Ok(())
        });
        assert!(read.is_ok());
        assert_eq!(found, [(1, false), (2, true), (3, false)]);
        assert!(matches!(fields(&[0x12, 0x02, b'a'], |_, _| Ok(())), Err(Halt::Short)));
    }
}
