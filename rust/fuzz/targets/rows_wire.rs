//! The rows that a server answers: as they come, or put together from parts. However they are cut, they are the same.
#![no_main]

use _native::rows_fuzzing::Stop;
use arrow_array::RecordBatch;
use headrace_fuzz::answers::{Answer, any_schema, read};
use libfuzzer_sys::fuzz_target;

const RAW: u8 = 0x80;
const ONE_BY_ONE: Stop = Stop { rows: 1, bytes: 1 };
const MANY: Stop = Stop { rows: 1000, bytes: 1 << 20 };

fuzz_target!(|data: &[u8]| {
    let Some((&options, data)) = data.split_first() else { return };
    let answer =
        if options & RAW != 0 { Some(Answer { schema: any_schema(), bytes: data.to_vec() }) } else { Answer::of(data) };
    let Some(Answer { schema, bytes }) = answer else { return };
    let (whole, fault) = read(&schema, &bytes, bytes.len(), MANY);
    let piece = 1 + usize::from(options & !RAW);
    let (single, single_fault) = read(&schema, &bytes, piece, ONE_BY_ONE);
    assert_eq!(fault.is_some(), single_fault.is_some(), "{fault:?} {single_fault:?}");
    let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    if fault.is_none() {
        assert_eq!(rows(&whole), rows(&single));
    }
    // Behind a fault, the batch under way is lost.
    assert!(rows(&whole) <= rows(&single));
    let mut single = single.iter();
    for batch in &whole {
        for row in 0..batch.num_rows() {
            let other = single.next().expect("as many rows");
            assert_eq!(batch.slice(row, 1).columns(), other.columns());
        }
    }
});
