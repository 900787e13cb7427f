//! The bytes of a file as they come: the frames of events, their checksums, and what skims over them.
#![no_main]

use _native::fuzzing::Skim;
use headrace_fuzz::chunks::FORMAT_DESCRIPTION;
use headrace_fuzz::drive::{Log, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&options, bytes)) = data.split_first() else { return };
    let _ = Skim::new("binlog.000001").expect("a name with a number").feed(bytes);
    let log = Log { bytes, network: false, definitions: &[], options: Options(options) };
    // A second format description belongs to the events behind it alone; no server writes one.
    if formats(bytes) > 1 {
        log.decode();
    } else {
        log.check_restarts();
    }
});

fn formats(bytes: &[u8]) -> usize {
    let (mut offset, mut formats) = (4, 0);
    while let Some(header) = bytes.get(offset..).and_then(|rest| rest.first_chunk::<19>()) {
        formats += usize::from(header[4] == FORMAT_DESCRIPTION);
        offset += (u32::from_le_bytes([header[9], header[10], header[11], header[12]]) as usize).max(19);
    }
    formats
}
