//! A file of `HBase`'s log, whole or byte by byte: the same entries, cells and faults, whatever it is.
#![no_main]

use _native::hbase_fuzzing::{Include, Reader, Stop};
use arrow_array::RecordBatch;
use libfuzzer_sys::fuzz_target;

const MANY: Stop = Stop { cells: 1 << 20, bytes: 1 << 24 };
const ONE: Stop = Stop { cells: 1, bytes: 1 };

/// Entries one by one, each with its cells, and whether damage came behind them.
fn read(data: &[u8], piece: usize, stop: Stop) -> (Vec<RecordBatch>, bool) {
    let include = Include::new(&["*.*".to_owned()], &[]).unwrap_or_else(|pattern| panic!("{pattern}"));
    let (mut reader, mut entries, mut end) = (Reader::new(include, 0), Vec::new(), 0);
    loop {
        let at = usize::try_from(reader.position()).expect("a position in the data");
        let used = match reader.feed(data.get(at..end).expect("a position that was fed"), stop) {
            Ok(used) => used,
            Err(_) => return (entries, true),
        };
        let has_entries = reader.entries() > 0;
        if has_entries {
            let (found, cells) = reader.finish().expect("columns that fit");
            let counts = found.column_by_name("cells").expect("a count").to_data();
            let total: u32 = counts.buffers()[0].typed_data::<u32>().iter().sum();
            assert_eq!(usize::try_from(total).ok(), Some(cells.num_rows()));
            entries.extend((0..found.num_rows()).map(|row| found.slice(row, 1)));
        }
        if used == 0 && !has_entries {
            if end == data.len() || reader.ended() {
                return (entries, false);
            }
            end = data.len().min(end + piece);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, data)) = data.split_first() else { return };
    let whole = read(data, data.len().max(1), MANY);
    assert_eq!(whole, read(data, 1 + usize::from(piece), ONE));
});
