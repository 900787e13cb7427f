//! Events that are right from the outside: what reads table maps, rows, values, statements and GTIDs.
#![no_main]

use headrace_fuzz::chunks::{self, FORMAT_DESCRIPTION};
use headrace_fuzz::drive::{Log, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&options, data)) = data.split_first() else { return };
    let options = Options(options);
    let chunks = chunks::split(data);
    let bytes = chunks::file(&chunks, options.checksums());
    let definitions = chunks::definitions(&chunks);
    let log = Log { bytes: &bytes, network: false, definitions: &definitions, options };
    // A second format description belongs to the events behind it alone; no server writes one.
    if chunks.iter().any(|chunk| chunk.kind == FORMAT_DESCRIPTION) {
        log.decode();
    } else {
        log.check_restarts();
    }
});
