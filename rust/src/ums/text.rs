//! Text as JSON strings.

const CHUNK: usize = 16;

fn must_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Writes UTF-8 in quotes.
pub fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    escape(out, text);
    out.push(b'"');
}

/// Copies text; runs without anything to escape go as they are, whole chunks looked at at once.
fn escape(out: &mut Vec<u8>, mut text: &[u8]) {
    while !text.is_empty() {
        let (chunks, _) = text.as_chunks::<CHUNK>();
        let clean_chunks = chunks.iter().take_while(|chunk| !chunk.iter().fold(false, |any, b| any | must_escape(*b)));
        let clean = clean_chunks.count() * CHUNK;
        let rest = text.get(clean..).unwrap_or_default();
        let run = clean + rest.iter().take_while(|byte| !must_escape(**byte)).count();
        let (plain, after) = text.split_at_checked(run).unwrap_or((text, &[]));
        out.extend_from_slice(plain);
        let Some((special, after)) = after.split_first() else { return };
        escaped(out, *special);
        text = after;
    }
}

fn escaped(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend([byte >> 4, byte & 15].iter().filter_map(|half| HEX.get(usize::from(*half))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_wherever_it_stands() {
        for at in 0..40 {
            let text = format!("{}\"\u{1}\n\\é{}", "a".repeat(at), "b".repeat(40 - at));
            let mut out = Vec::new();
            quoted(&mut out, text.as_bytes());
            let mut parsed = jiter::Jiter::new(&out);
            assert_eq!(parsed.next_str().ok(), Some(text.as_str()));
        }
    }
}
