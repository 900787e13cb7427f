//! The packets of a connection: as they come, or put together from events, which give the rows that a file of them gives.
#![no_main]

use headrace_fuzz::chunks::{self, Chunk, FORMAT_DESCRIPTION, ROTATE};
use headrace_fuzz::drive::{Log, Options, assert_begins, items};
use libfuzzer_sys::fuzz_target;

const RAW: u8 = 0x80;
/// Heartbeats, which only connections have, and the start of encryption, behind which a server sends its events decrypted.
const OTHER_ON_THE_WIRE: [u8; 3] = [27, 41, 164];

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else { return };
    let options = Options(first);
    if first & RAW != 0 {
        Log { bytes: data, network: true, definitions: &[], options }.decode();
        return;
    }
    let chunks = chunks::split(data);
    let definitions = chunks::definitions(&chunks);
    let packets = chunks::packets(&chunks, options.checksums());
    let sent = Log { bytes: &packets, network: true, definitions: &definitions, options }.decode();
    if chunks.iter().any(differs_on_the_wire) {
        return;
    }
    let file = chunks::file(&chunks, options.checksums());
    let stored = Log { bytes: &file, network: false, definitions: &definitions, options }.decode();
    if let (Some((sent, sent_fault)), Some((stored, stored_fault))) = (sent, stored) {
        assert_eq!(sent_fault.is_some(), stored_fault.is_some(), "{sent_fault:?} {stored_fault:?}");
        assert_begins(items(&sent), items(&stored), true);
    }
});

fn differs_on_the_wire(chunk: &Chunk<'_>) -> bool {
    [FORMAT_DESCRIPTION, ROTATE].contains(&chunk.kind)
        || OTHER_ON_THE_WIRE.contains(&chunk.kind)
        || chunk.is_artificial()
}
