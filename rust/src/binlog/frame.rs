//! Where the next event is: in a file one stands behind the other; on the wire each is in packets.
//!
//! ```text
//! packet  = length u24 | sequence u8 | payload          a payload of 2^24 - 1 bytes goes on in the next packet
//! payload = 0x00, event | 0xff, error code u16, '#', SQL state 5, text | 0xfe (the server has nothing more)
//! ```

use std::borrow::Cow;

use super::cursor::Cursor;
use super::event::Header;
use super::fault::{Fault, Read};

const FULL_PACKET_BYTES: usize = (1 << 24) - 1;
const PACKET_HEADER_BYTES: usize = 4;

/// An event and how many bytes of input it took.
pub struct Frame<'a> {
    pub header: Header,
    pub event: Cow<'a, [u8]>,
    pub used: usize,
}

/// The event at the beginning of `data`; None when its end is not there yet.
pub fn in_file(data: &[u8]) -> Read<Option<Frame<'_>>> {
    if data.len() < super::event::HEADER_BYTES {
        return Ok(None);
    }
    let header = Header::read(data)?;
    let used = header.length;
    Ok(data.get(..used).map(|event| Frame { header, event: Cow::Borrowed(event), used }))
}

/// As `in_file`, for the packets of a connection. The packets of a large event are joined, which copies them.
pub fn in_packets(data: &[u8]) -> Read<Option<Frame<'_>>> {
    let mut cursor = Cursor::new(data);
    let Some((first, mut goes_on)) = packet(&mut cursor) else { return Ok(None) };
    let mut more = Vec::new();
    while goes_on {
        let Some((part, further)) = packet(&mut cursor) else { return Ok(None) };
        more.push(part);
        goes_on = further;
    }
    let used = data.len() - cursor.left();
    let event = match first.split_first() {
        Some((0x00, event)) => event,
        Some((0xff, _)) => return Err(server_error(first)),
        Some((0xfe, _)) => {
            return Err(Fault::away("the server ended the stream of its log"));
        }
        other => {
            return Err(Fault::corrupt(format!("a packet of the log begins with {:?}", other.map(|(byte, _)| byte))));
        }
    };
    let event =
        if more.is_empty() { Cow::Borrowed(event) } else { Cow::Owned([&[event], more.as_slice()].concat().concat()) };
    let header = Header::read(&event)?;
    if header.length != event.len() {
        return Err(Fault::corrupt(format!("an event of {} bytes in a packet of {}", header.length, event.len())));
    }
    Ok(Some(Frame { header, event, used }))
}

/// One payload, and whether the next packet goes on with it.
fn packet<'a>(cursor: &mut Cursor<'a>) -> Option<(&'a [u8], bool)> {
    if cursor.left() < PACKET_HEADER_BYTES {
        return None;
    }
    let length = usize::try_from(cursor.u24().ok()?).ok()?;
    cursor.skip(1).ok()?;
    Some((cursor.bytes(length).ok()?, length == FULL_PACKET_BYTES))
}

/// Server shutdown, query interrupted, connection killed.
const SHUTTING_DOWN: [u16; 3] = [1053, 1317, 1927];

/// `MariaDB`'s own number for it.
const SAME_SERVER_ID: u16 = 4052;

fn server_error(payload: &[u8]) -> Fault {
    let mut cursor = Cursor::new(payload);
    let code = cursor.skip(1).and_then(|()| cursor.u16()).unwrap_or(0);
    let text = String::from_utf8_lossy(cursor.rest()).into_owned();
    // The state is '#' and five letters.
    let text = text.strip_prefix('#').and_then(|rest| rest.get(5..)).unwrap_or(&text);
    if SHUTTING_DOWN.contains(&code) {
        return Fault::away(format!("the server ended the stream with error {code}: {text}"));
    }
    let fix = match code {
        _ if code == SAME_SERVER_ID || text.contains("server_uuid/server_id") => {
            "another capture or replica uses this server_id: give each its own `server_id` in the source"
        }
        1236 => {
            "the position is not in the server's logs, or a setting is wrong, as its text says: correct it, or let capture go on elsewhere (`headrace skip FLOW.yaml`) and load the tables again"
        }
        1227 | 1045 => "grant REPLICATION SLAVE and REPLICATION CLIENT to the capture's user",
        _ => "see the server's text and its error log",
    };
    Fault::refused(format!("the server answered error {code}: {text}"), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(data: &[u8]) -> String {
        in_packets(data).err().map(|fault| fault.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn an_error_of_the_server_keeps_its_text() {
        let mut data = vec![13, 0, 0, 1, 0xff, 0xd4, 0x04];
        data.extend(b"#HY000Gone");
        assert_eq!(message(&data), "the server answered error 1236: Gone");
    }

    #[test]
    fn packets_that_are_not_whole_are_left() {
        assert!(in_packets(&[20, 0, 0]).is_ok_and(|frame| frame.is_none()));
        assert!(in_packets(&[20, 0, 0, 1, 0]).is_ok_and(|frame| frame.is_none()));
        assert!(in_file(&[0; 18]).is_ok_and(|frame| frame.is_none()));
    }

    #[test]
    fn events_shorter_than_their_header_are_corrupt() {
        assert!(in_file(&[0; 19]).is_err());
        assert!(in_packets(&[1, 0, 0, 1, 0]).is_err());
    }
}
