//! Character sets as the servers have them, where that is not what the web (and so `encoding_rs`) has.
//!
//! `MySQL` and `MariaDB` agree in every character. `tests/oracle/test_charsets.py` asks both of them for all.

/// From these bytes (big-endian) to those, the characters from this one on; `NONE`: the servers know none.
pub type Run = (u32, u32, char);

pub const NONE: char = char::REPLACEMENT_CHARACTER;

pub static BIG5: [Run; 39] = [
    (0xa145, 0xa145, '•'), (0xa14e, 0xa14e, '､'), (0xa15a, 0xa15a, NONE), (0xa1c2, 0xa1c2, '‾'), (0xa1c3, 0xa1c3, NONE),
    (0xa1c5, 0xa1c5, NONE), (0xa1e3, 0xa1e3, '∼'), (0xa1f2, 0xa1f2, '♁'), (0xa1f3, 0xa1f3, '☉'), (0xa1fe, 0xa1fe, NONE),
    (0xa240, 0xa240, NONE), (0xa241, 0xa241, '／'), (0xa242, 0xa242, '＼'), (0xa244, 0xa244, '¥'), (0xa246, 0xa247, '¢'),
    (0xa2cc, 0xa2cc, NONE), (0xa2ce, 0xa2ce, NONE), (0xa3c0, 0xa3e1, NONE), (0xc6a1, 0xc6a1, 'ヾ'),
    (0xc6a2, 0xc6a3, 'ゝ'), (0xc6a4, 0xc6a4, '々'), (0xc6a5, 0xc6f7, 'ぁ'), (0xc6f8, 0xc6fe, 'ァ'), (0xc740, 0xc77e, 'エ'),
    (0xc7a1, 0xc7b0, 'ョ'), (0xc7b1, 0xc7b2, 'Д'), (0xc7b3, 0xc7b3, 'Ё'), (0xc7b4, 0xc7ba, 'Ж'), (0xc7bb, 0xc7cd, 'У'),
    (0xc7ce, 0xc7ce, 'ё'), (0xc7cf, 0xc7e8, 'ж'), (0xc7e9, 0xc7f2, '①'), (0xc7f3, 0xc7fc, '⑴'), (0xc7fd, 0xc7fe, NONE),
    (0xc840, 0xc87e, NONE), (0xc8a1, 0xc8a4, NONE), (0xc8cd, 0xc8f1, NONE), (0xc8f5, 0xc8fe, NONE),
    (0xf9dd, 0xf9fe, NONE),
];

pub static CP1250: [Run; 5] = [
    (0x81, 0x81, NONE), (0x83, 0x83, NONE), (0x88, 0x88, NONE), (0x90, 0x90, NONE), (0x98, 0x98, NONE),
];

pub static CP1251: [Run; 1] = [
    (0x98, 0x98, NONE),
];

pub static CP1256: [Run; 8] = [
    (0x8a, 0x8a, NONE), (0x8f, 0x8f, NONE), (0x98, 0x98, NONE), (0x9a, 0x9a, NONE), (0x9f, 0x9f, NONE),
    (0xaa, 0xaa, NONE), (0xc0, 0xc0, NONE), (0xff, 0xff, NONE),
];

pub static CP1257: [Run; 10] = [
    (0x81, 0x81, NONE), (0x83, 0x83, NONE), (0x88, 0x88, NONE), (0x8a, 0x8a, NONE), (0x8c, 0x8c, NONE),
    (0x90, 0x90, NONE), (0x98, 0x98, NONE), (0x9a, 0x9a, NONE), (0x9c, 0x9c, NONE), (0x9f, 0x9f, NONE),
];

pub static CP866: [Run; 2] = [
    (0xfc, 0xfc, 'ⁿ'), (0xfd, 0xfd, '²'),
];

pub static DEC8: [Run; 20] = [
    (0x80, 0x80, '\u{80}'), (0x82, 0x8c, '\u{82}'), (0x8e, 0x8e, '\u{8e}'), (0x91, 0x9c, '\u{91}'),
    (0x9e, 0x9f, '\u{9e}'), (0xa4, 0xa4, NONE), (0xa6, 0xa6, NONE), (0xa8, 0xa8, '¤'), (0xac, 0xaf, NONE),
    (0xb4, 0xb4, NONE), (0xb8, 0xb8, NONE), (0xbe, 0xbe, NONE), (0xd0, 0xd0, NONE), (0xd7, 0xd7, 'Œ'),
    (0xdd, 0xdd, 'Ÿ'), (0xde, 0xde, NONE), (0xf0, 0xf0, NONE), (0xf7, 0xf7, 'œ'), (0xfd, 0xfd, 'ÿ'), (0xfe, 0xff, NONE),
];

pub static EUCJPMS: [Run; 97] = [
    (0xf5a1, 0xf5fe, '\u{e000}'), (0xf6a1, 0xf6fe, '\u{e05e}'), (0xf7a1, 0xf7fe, '\u{e0bc}'),
    (0xf8a1, 0xf8fe, '\u{e11a}'), (0xf9a1, 0xf9fe, '\u{e178}'), (0xfaa1, 0xfafe, '\u{e1d6}'),
    (0xfba1, 0xfbfe, '\u{e234}'), (0xfca1, 0xfcfe, '\u{e292}'), (0xfda1, 0xfdfe, '\u{e2f0}'),
    (0xfea1, 0xfefe, '\u{e34e}'), (0x8f_a2c3, 0x8f_a2c3, '￤'), (0x8f_f3f3, 0x8f_f3fc, 'ⅰ'), (0x8f_f3fd, 0x8f_f3fe, 'Ⅰ'),
    (0x8f_f4a1, 0x8f_f4a8, 'Ⅲ'), (0x8f_f4a9, 0x8f_f4a9, '＇'), (0x8f_f4aa, 0x8f_f4aa, '＂'), (0x8f_f4ab, 0x8f_f4ab, '㈱'),
    (0x8f_f4ac, 0x8f_f4ac, '№'), (0x8f_f4ad, 0x8f_f4ad, '℡'), (0x8f_f4ae, 0x8f_f4ae, '炻'), (0x8f_f4af, 0x8f_f4af, '仼'),
    (0x8f_f4b0, 0x8f_f4b0, '僴'), (0x8f_f4b1, 0x8f_f4b1, '凬'), (0x8f_f4b2, 0x8f_f4b2, '匇'), (0x8f_f4b3, 0x8f_f4b3, '匤'),
    (0x8f_f4b4, 0x8f_f4b4, '﨎'), (0x8f_f4b5, 0x8f_f4b5, '咊'), (0x8f_f4b6, 0x8f_f4b6, '坙'), (0x8f_f4b7, 0x8f_f4b8, '﨏'),
    (0x8f_f4b9, 0x8f_f4b9, '增'), (0x8f_f4ba, 0x8f_f4ba, '寬'), (0x8f_f4bb, 0x8f_f4bb, '峵'), (0x8f_f4bc, 0x8f_f4bc, '嵓'),
    (0x8f_f4bd, 0x8f_f4bd, '﨑'), (0x8f_f4be, 0x8f_f4be, '德'), (0x8f_f4bf, 0x8f_f4bf, '悅'), (0x8f_f4c0, 0x8f_f4c0, '愠'),
    (0x8f_f4c1, 0x8f_f4c1, '敎'), (0x8f_f4c2, 0x8f_f4c2, '昻'), (0x8f_f4c3, 0x8f_f4c3, '晥'),
    (0x8f_f4c4, 0x8f_f4c4, '\u{fa12}'), (0x8f_f4c5, 0x8f_f4c5, '\u{f929}'), (0x8f_f4c6, 0x8f_f4c6, '栁'),
    (0x8f_f4c7, 0x8f_f4c8, '﨓'), (0x8f_f4c9, 0x8f_f4c9, '橫'), (0x8f_f4ca, 0x8f_f4ca, '櫢'), (0x8f_f4cb, 0x8f_f4cb, '淸'),
    (0x8f_f4cc, 0x8f_f4cc, '淲'), (0x8f_f4cd, 0x8f_f4cd, '瀨'), (0x8f_f4ce, 0x8f_f4cf, '\u{fa15}'),
    (0x8f_f4d0, 0x8f_f4d0, '甁'), (0x8f_f4d1, 0x8f_f4d1, '皂'), (0x8f_f4d2, 0x8f_f4d2, '皞'),
    (0x8f_f4d3, 0x8f_f4d3, '\u{fa17}'), (0x8f_f4d4, 0x8f_f4d4, '礰'), (0x8f_f4d5, 0x8f_f4d8, '\u{fa18}'),
    (0x8f_f4d9, 0x8f_f4d9, '竧'), (0x8f_f4da, 0x8f_f4db, '\u{fa1c}'), (0x8f_f4dc, 0x8f_f4dc, '綠'),
    (0x8f_f4dd, 0x8f_f4dd, '緖'), (0x8f_f4de, 0x8f_f4de, '\u{fa1e}'), (0x8f_f4df, 0x8f_f4df, '荢'),
    (0x8f_f4e0, 0x8f_f4e0, '﨟'), (0x8f_f4e1, 0x8f_f4e1, '薰'), (0x8f_f4e2, 0x8f_f4e3, '\u{fa20}'),
    (0x8f_f4e4, 0x8f_f4e4, '蠇'), (0x8f_f4e5, 0x8f_f4e5, '\u{fa22}'), (0x8f_f4e6, 0x8f_f4e6, '譿'),
    (0x8f_f4e7, 0x8f_f4e7, '賴'), (0x8f_f4e8, 0x8f_f4e8, '赶'), (0x8f_f4e9, 0x8f_f4eb, '﨣'), (0x8f_f4ec, 0x8f_f4ec, '郞'),
    (0x8f_f4ed, 0x8f_f4ed, '\u{fa26}'), (0x8f_f4ee, 0x8f_f4ee, '鄕'), (0x8f_f4ef, 0x8f_f4f0, '﨧'),
    (0x8f_f4f1, 0x8f_f4f1, '閒'), (0x8f_f4f2, 0x8f_f4f2, '\u{f9dc}'), (0x8f_f4f3, 0x8f_f4f3, '﨩'),
    (0x8f_f4f4, 0x8f_f4f4, '霻'), (0x8f_f4f5, 0x8f_f4f5, '靍'), (0x8f_f4f6, 0x8f_f4f6, '靑'),
    (0x8f_f4f7, 0x8f_f4f9, '\u{fa2a}'), (0x8f_f4fa, 0x8f_f4fa, '馞'), (0x8f_f4fb, 0x8f_f4fb, '髙'),
    (0x8f_f4fc, 0x8f_f4fc, '魲'), (0x8f_f4fd, 0x8f_f4fd, '\u{fa2d}'), (0x8f_f4fe, 0x8f_f4fe, '黑'),
    (0x8f_f5a1, 0x8f_f5fe, '\u{e3ac}'), (0x8f_f6a1, 0x8f_f6fe, '\u{e40a}'), (0x8f_f7a1, 0x8f_f7fe, '\u{e468}'),
    (0x8f_f8a1, 0x8f_f8fe, '\u{e4c6}'), (0x8f_f9a1, 0x8f_f9fe, '\u{e524}'), (0x8f_faa1, 0x8f_fafe, '\u{e582}'),
    (0x8f_fba1, 0x8f_fbfe, '\u{e5e0}'), (0x8f_fca1, 0x8f_fcfe, '\u{e63e}'), (0x8f_fda1, 0x8f_fdfe, '\u{e69c}'),
    (0x8f_fea1, 0x8f_fefe, '\u{e6fa}'),
];

pub static GB18030: [Run; 11] = [
    (0xa3a0, 0xa3a0, '\u{e5e5}'), (0xa6d9, 0xa6df, '\u{e78d}'), (0xa6ec, 0xa6ed, '\u{e794}'),
    (0xa6f3, 0xa6f3, '\u{e796}'), (0xfe59, 0xfe59, '\u{e81e}'), (0xfe61, 0xfe61, '\u{e826}'),
    (0xfe66, 0xfe67, '\u{e82b}'), (0xfe6d, 0xfe6d, '\u{e832}'), (0xfe7e, 0xfe7e, '\u{e843}'),
    (0xfe90, 0xfe90, '\u{e854}'), (0xfea0, 0xfea0, '\u{e864}'),
];

pub static GB2312: [Run; 23] = [
    (0xa1a4, 0xa1a4, '・'), (0xa1aa, 0xa1aa, '―'), (0xa2a1, 0xa2b0, NONE), (0xa2e3, 0xa2e4, NONE),
    (0xa2ef, 0xa2f0, NONE), (0xa2fd, 0xa2fe, NONE), (0xa4f4, 0xa4fe, NONE), (0xa5f7, 0xa5fe, NONE),
    (0xa6b9, 0xa6c0, NONE), (0xa6d9, 0xa6fe, NONE), (0xa7c2, 0xa7d0, NONE), (0xa7f2, 0xa7fe, NONE),
    (0xa8bb, 0xa8c4, NONE), (0xa8ea, 0xa8fe, NONE), (0xa9a1, 0xa9a3, NONE), (0xa9f0, 0xa9fe, NONE),
    (0xaaa1, 0xaafe, NONE), (0xaba1, 0xabfe, NONE), (0xaca1, 0xacfe, NONE), (0xada1, 0xadfe, NONE),
    (0xaea1, 0xaefe, NONE), (0xafa1, 0xaffe, NONE), (0xd7fa, 0xd7fe, NONE),
];

pub static GBK: [Run; 53] = [
    (0xa140, 0xa17e, NONE), (0xa180, 0xa1a0, NONE), (0xa240, 0xa27e, NONE), (0xa280, 0xa2a0, NONE),
    (0xa2ab, 0xa2b0, NONE), (0xa2e3, 0xa2e4, NONE), (0xa2ef, 0xa2f0, NONE), (0xa2fd, 0xa2fe, NONE),
    (0xa340, 0xa37e, NONE), (0xa380, 0xa3a0, NONE), (0xa440, 0xa47e, NONE), (0xa480, 0xa4a0, NONE),
    (0xa4f4, 0xa4fe, NONE), (0xa540, 0xa57e, NONE), (0xa580, 0xa5a0, NONE), (0xa5f7, 0xa5fe, NONE),
    (0xa640, 0xa67e, NONE), (0xa680, 0xa6a0, NONE), (0xa6b9, 0xa6c0, NONE), (0xa6d9, 0xa6df, NONE),
    (0xa6ec, 0xa6ed, NONE), (0xa6f3, 0xa6f3, NONE), (0xa6f6, 0xa6fe, NONE), (0xa740, 0xa77e, NONE),
    (0xa780, 0xa7a0, NONE), (0xa7c2, 0xa7d0, NONE), (0xa7f2, 0xa7fe, NONE), (0xa896, 0xa8a0, NONE),
    (0xa8bc, 0xa8bc, NONE), (0xa8bf, 0xa8bf, NONE), (0xa8c1, 0xa8c4, NONE), (0xa8ea, 0xa8fe, NONE),
    (0xa958, 0xa958, NONE), (0xa95b, 0xa95b, NONE), (0xa95d, 0xa95f, NONE), (0xa989, 0xa995, NONE),
    (0xa997, 0xa9a3, NONE), (0xa9f0, 0xa9fe, NONE), (0xaaa1, 0xaafe, NONE), (0xaba1, 0xabfe, NONE),
    (0xaca1, 0xacfe, NONE), (0xada1, 0xadfe, NONE), (0xaea1, 0xaefe, NONE), (0xafa1, 0xaffe, NONE),
    (0xd7fa, 0xd7fe, NONE), (0xf8a1, 0xf8fe, NONE), (0xf9a1, 0xf9fe, NONE), (0xfaa1, 0xfafe, NONE),
    (0xfba1, 0xfbfe, NONE), (0xfca1, 0xfcfe, NONE), (0xfda1, 0xfdfe, NONE), (0xfe50, 0xfe7e, NONE),
    (0xfe80, 0xfefe, NONE),
];

pub static GREEK: [Run; 4] = [
    (0xa1, 0xa1, 'ʽ'), (0xa2, 0xa2, 'ʼ'), (0xa4, 0xa5, NONE), (0xaa, 0xaa, NONE),
];

pub static HEBREW: [Run; 1] = [
    (0xaf, 0xaf, '‾'),
];

pub static KOI8U: [Run; 3] = [
    (0x95, 0x95, '•'), (0xae, 0xae, '╝'), (0xbe, 0xbe, '╬'),
];

pub static LATIN5: [Run; 4] = [
    (0x80, 0x80, '\u{80}'), (0x82, 0x8c, '\u{82}'), (0x91, 0x9c, '\u{91}'), (0x9f, 0x9f, '\u{9f}'),
];

pub static SJIS: [Run; 40] = [
    (0x815f, 0x815f, '\\'), (0x8160, 0x8160, '〜'), (0x8161, 0x8161, '‖'), (0x817c, 0x817c, '−'), (0x8191, 0x8192, '¢'),
    (0x81ca, 0x81ca, '¬'), (0x8740, 0x875d, NONE), (0x875f, 0x8775, NONE), (0x877e, 0x877e, NONE),
    (0x8780, 0x879c, NONE), (0xed40, 0xed7e, NONE), (0xed80, 0xedfc, NONE), (0xee40, 0xee7e, NONE),
    (0xee80, 0xeeec, NONE), (0xeeef, 0xeefc, NONE), (0xf040, 0xf07e, NONE), (0xf080, 0xf0fc, NONE),
    (0xf140, 0xf17e, NONE), (0xf180, 0xf1fc, NONE), (0xf240, 0xf27e, NONE), (0xf280, 0xf2fc, NONE),
    (0xf340, 0xf37e, NONE), (0xf380, 0xf3fc, NONE), (0xf440, 0xf47e, NONE), (0xf480, 0xf4fc, NONE),
    (0xf540, 0xf57e, NONE), (0xf580, 0xf5fc, NONE), (0xf640, 0xf67e, NONE), (0xf680, 0xf6fc, NONE),
    (0xf740, 0xf77e, NONE), (0xf780, 0xf7fc, NONE), (0xf840, 0xf87e, NONE), (0xf880, 0xf8fc, NONE),
    (0xf940, 0xf97e, NONE), (0xf980, 0xf9fc, NONE), (0xfa40, 0xfa7e, NONE), (0xfa80, 0xfafc, NONE),
    (0xfb40, 0xfb7e, NONE), (0xfb80, 0xfbfc, NONE), (0xfc40, 0xfc4b, NONE),
];

pub static SWE7: [Run; 11] = [
    (0x40, 0x40, 'É'), (0x5b, 0x5b, 'Ä'), (0x5c, 0x5c, 'Ö'), (0x5d, 0x5d, 'Å'), (0x5e, 0x5e, 'Ü'), (0x60, 0x60, 'é'),
    (0x7b, 0x7b, 'ä'), (0x7c, 0x7c, 'ö'), (0x7d, 0x7d, 'å'), (0x7e, 0x7e, 'ü'), (0x7f, 0xff, NONE),
];

pub static TIS620: [Run; 4] = [
    (0x80, 0x80, '\u{80}'), (0x85, 0x85, '\u{85}'), (0x91, 0x97, '\u{91}'), (0xa0, 0xa0, NONE),
];

pub static UJIS: [Run; 30] = [
    (0xa1c0, 0xa1c0, '\\'), (0xa1c1, 0xa1c1, '〜'), (0xa1c2, 0xa1c2, '‖'), (0xa1dd, 0xa1dd, '−'), (0xa1f1, 0xa1f2, '¢'),
    (0xa2cc, 0xa2cc, '¬'), (0xada1, 0xadbe, NONE), (0xadc0, 0xadd6, NONE), (0xaddf, 0xadfc, NONE),
    (0xf5a1, 0xf5fe, '\u{e000}'), (0xf6a1, 0xf6fe, '\u{e05e}'), (0xf7a1, 0xf7fe, '\u{e0bc}'),
    (0xf8a1, 0xf8fe, '\u{e11a}'), (0xf9a1, 0xf9fe, '\u{e178}'), (0xfaa1, 0xfafe, '\u{e1d6}'),
    (0xfba1, 0xfbfe, '\u{e234}'), (0xfca1, 0xfcfe, '\u{e292}'), (0xfda1, 0xfdfe, '\u{e2f0}'),
    (0xfea1, 0xfefe, '\u{e34e}'), (0x8f_a2b7, 0x8f_a2b7, '~'), (0x8f_f5a1, 0x8f_f5fe, '\u{e3ac}'),
    (0x8f_f6a1, 0x8f_f6fe, '\u{e40a}'), (0x8f_f7a1, 0x8f_f7fe, '\u{e468}'), (0x8f_f8a1, 0x8f_f8fe, '\u{e4c6}'),
    (0x8f_f9a1, 0x8f_f9fe, '\u{e524}'), (0x8f_faa1, 0x8f_fafe, '\u{e582}'), (0x8f_fba1, 0x8f_fbfe, '\u{e5e0}'),
    (0x8f_fca1, 0x8f_fcfe, '\u{e63e}'), (0x8f_fda1, 0x8f_fdfe, '\u{e69c}'), (0x8f_fea1, 0x8f_fefe, '\u{e6fa}'),
];

pub static ARMSCII8: [char; 128] = [
    '\u{80}', '\u{81}', '\u{82}', '\u{83}', '\u{84}', '\u{85}', '\u{86}', '\u{87}', '\u{88}', '\u{89}', '\u{8a}',
    '\u{8b}', '\u{8c}', '\u{8d}', '\u{8e}', '\u{8f}', '\u{90}', '\u{91}', '\u{92}', '\u{93}', '\u{94}', '\u{95}',
    '\u{96}', '\u{97}', '\u{98}', '\u{99}', '\u{9a}', '\u{9b}', '\u{9c}', '\u{9d}', '\u{9e}', '\u{9f}', '\u{a0}', '❁',
    '§', '։', ')', '(', '»', '«', '—', '.', '՝', ',', '-', '՟', '…', '՜', '՛', '՞', 'Ա', 'ա', 'Բ', 'բ', 'Գ', 'գ',
    'Դ', 'դ', 'Ե', 'ե', 'Զ', 'զ', 'Է', 'է', 'Ը', 'ը', 'Թ', 'թ', 'Ժ', 'ժ', 'Ի', 'ի', 'Լ', 'լ', 'Խ', 'խ', 'Ծ', 'ծ', 'Կ',
    'կ', 'Հ', 'հ', 'Ձ', 'ձ', 'Ղ', 'ղ', 'Ճ', 'ճ', 'Մ', 'մ', 'Յ', 'յ', 'Ն', 'ն', 'Շ', 'շ', 'Ո', 'ո', 'Չ', 'չ', 'Պ', 'պ',
    'Ջ', 'ջ', 'Ռ', 'ռ', 'Ս', 'ս', 'Վ', 'վ', 'Տ', 'տ', 'Ր', 'ր', 'Ց', 'ց', 'Ւ', 'ւ', 'Փ', 'փ', 'Ք', 'ք', 'Օ', 'օ', 'Ֆ',
    'ֆ', '’', '\'',
];

pub static CP850: [char; 128] = [
    'Ç', 'ü', 'é', 'â', 'ä', 'à', 'å', 'ç', 'ê', 'ë', 'è', 'ï', 'î', 'ì', 'Ä', 'Å', 'É', 'æ', 'Æ', 'ô', 'ö', 'ò', 'û',
    'ù', 'ÿ', 'Ö', 'Ü', 'ø', '£', 'Ø', '×', 'ƒ', 'á', 'í', 'ó', 'ú', 'ñ', 'Ñ', 'ª', 'º', '¿', '®', '¬', '½', '¼', '¡',
    '«', '»', '░', '▒', '▓', '│', '┤', 'Á', 'Â', 'À', '©', '╣', '║', '╗', '╝', '¢', '¥', '┐', '└', '┴', '┬', '├', '─',
    '┼', 'ã', 'Ã', '╚', '╔', '╩', '╦', '╠', '═', '╬', '¤', 'ð', 'Ð', 'Ê', 'Ë', 'È', 'ı', 'Í', 'Î', 'Ï', '┘', '┌', '█',
    '▄', '¦', 'Ì', '▀', 'Ó', 'ß', 'Ô', 'Ò', 'õ', 'Õ', 'µ', 'þ', 'Þ', 'Ú', 'Û', 'Ù', 'ý', 'Ý', '¯', '´', '\u{ad}', '±',
    '‗', '¾', '¶', '§', '÷', '¸', '°', '¨', '·', '¹', '³', '²', '■', '\u{a0}',
];

pub static CP852: [char; 128] = [
    'Ç', 'ü', 'é', 'â', 'ä', 'ů', 'ć', 'ç', 'ł', 'ë', 'Ő', 'ő', 'î', 'Ź', 'Ä', 'Ć', 'É', 'Ĺ', 'ĺ', 'ô', 'ö', 'Ľ', 'ľ',
    'Ś', 'ś', 'Ö', 'Ü', 'Ť', 'ť', 'Ł', '×', 'č', 'á', 'í', 'ó', 'ú', 'Ą', 'ą', 'Ž', 'ž', 'Ę', 'ę', '¬', 'ź', 'Č', 'ş',
    '«', '»', '░', '▒', '▓', '│', '┤', 'Á', 'Â', 'Ě', 'Ş', '╣', '║', '╗', '╝', 'Ż', 'ż', '┐', '└', '┴', '┬', '├', '─',
    '┼', 'Ă', 'ă', '╚', '╔', '╩', '╦', '╠', '═', '╬', '¤', 'đ', 'Đ', 'Ď', 'Ë', 'ď', 'Ň', 'Í', 'Î', 'ě', '┘', '┌', '█',
    '▄', 'Ţ', 'Ů', '▀', 'Ó', 'ß', 'Ô', 'Ń', 'ń', 'ň', 'Š', 'š', 'Ŕ', 'Ú', 'ŕ', 'Ű', 'ý', 'Ý', 'ţ', '´', '\u{ad}', '˝',
    '˛', 'ˇ', '˘', '§', '÷', '¸', '°', '¨', '˙', 'ű', 'Ř', 'ř', '■', '\u{a0}',
];

pub static GEOSTD8: [char; 128] = [
    '€', NONE, '‚', NONE, '„', '…', '†', '‡', NONE, '‰', NONE, '‹', NONE, NONE, NONE, NONE, NONE, '‘', '’', '“', '”',
    '•', '–', '—', NONE, NONE, NONE, '›', NONE, NONE, NONE, NONE, '\u{a0}', '¡', '¢', '£', '¤', '¥', '¦', '§', '¨',
    '©', 'ª', '«', '¬', '\u{ad}', '®', '¯', '°', '±', '²', '³', '´', 'µ', '¶', '·', '¸', '¹', 'º', '»', '¼', '½', '¾',
    '¿', 'ა', 'ბ', 'გ', 'დ', 'ე', 'ვ', 'ზ', 'ჱ', 'თ', 'ი', 'კ', 'ლ', 'მ', 'ნ', 'ჲ', 'ო', 'პ', 'ჟ', 'რ', 'ს', 'ტ', 'ჳ',
    'უ', 'ფ', 'ქ', 'ღ', 'ყ', 'შ', 'ჩ', 'ც', 'ძ', 'წ', 'ჭ', 'ხ', 'ჴ', 'ჯ', 'ჰ', 'ჵ', NONE, NONE, NONE, NONE, NONE,
    NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, '№',
    NONE, NONE,
];

pub static HP8: [char; 128] = [
    '\u{80}', '\u{81}', '\u{82}', '\u{83}', '\u{84}', '\u{85}', '\u{86}', '\u{87}', '\u{88}', '\u{89}', '\u{8a}',
    '\u{8b}', '\u{8c}', '\u{8d}', '\u{8e}', '\u{8f}', '\u{90}', '\u{91}', '\u{92}', '\u{93}', '\u{94}', '\u{95}',
    '\u{96}', '\u{97}', '\u{98}', '\u{99}', '\u{9a}', '\u{9b}', '\u{9c}', '\u{9d}', '\u{9e}', '\u{9f}', '\u{a0}', 'À',
    'Â', 'È', 'Ê', 'Ë', 'Î', 'Ï', '´', 'ˋ', 'ˆ', '¨', '˜', 'Ù', 'Û', '₤', '¯', 'Ý', 'ý', '°', 'Ç', 'ç', 'Ñ', 'ñ', '¡',
    '¿', '¤', '£', '¥', '§', 'ƒ', '¢', 'â', 'ê', 'ô', 'û', 'á', 'é', 'ó', 'ú', 'à', 'è', 'ò', 'ù', 'ä', 'ë', 'ö', 'ü',
    'Å', 'î', 'Ø', 'Æ', 'å', 'í', 'ø', 'æ', 'Ä', 'ì', 'Ö', 'Ü', 'É', 'ï', 'ß', 'Ô', 'Á', 'Ã', 'ã', 'Ð', 'ð', 'Í', 'Ì',
    'Ó', 'Ò', 'Õ', 'õ', 'Š', 'š', 'Ú', 'Ÿ', 'ÿ', 'Þ', 'þ', '·', 'µ', '¶', '¾', '—', '¼', '½', 'ª', 'º', '«', '■', '»',
    '±', NONE,
];

pub static KEYBCS2: [char; 128] = [
    'Č', 'ü', 'é', 'ď', 'ä', 'Ď', 'Ť', 'č', 'ě', 'Ě', 'Ĺ', 'Í', 'ľ', 'ĺ', 'Ä', 'Á', 'É', 'ž', 'Ž', 'ô', 'ö', 'Ó', 'ů',
    'Ú', 'ý', 'Ö', 'Ü', 'Š', 'Ľ', 'Ý', 'Ř', 'ť', 'á', 'í', 'ó', 'ú', 'ň', 'Ň', 'Ů', 'Ô', 'š', 'ř', 'ŕ', 'Ŕ', '¼', '¡',
    '«', '»', '░', '▒', '▓', '│', '┤', '╡', '╢', '╖', '╕', '╣', '║', '╗', '╝', '╜', '╛', '┐', '└', '┴', '┬', '├', '─',
    '┼', '╞', '╟', '╚', '╔', '╩', '╦', '╠', '═', '╬', '╧', '╨', '╤', '╥', '╙', '╘', '╒', '╓', '╫', '╪', '┘', '┌', '█',
    '▄', '▌', '▐', '▀', 'α', 'ß', 'Γ', 'π', 'Σ', 'σ', 'µ', 'τ', 'Φ', 'Θ', 'Ω', 'δ', '∞', 'φ', 'ε', '∩', '≡', '±', '≥',
    '≤', '⌠', '⌡', '÷', '≈', '°', '∙', '·', '√', 'ⁿ', '²', '■', '\u{a0}',
];

pub static MACCE: [char; 128] = [
    'Ä', 'Ā', 'ā', 'É', 'Ą', 'Ö', 'Ü', 'á', 'ą', 'Č', 'ä', 'č', 'Ć', 'ć', 'é', 'Ź', 'ź', 'Ď', 'í', 'ď', 'Ē', 'ē', 'Ė',
    'ó', 'ė', 'ô', 'ö', 'õ', 'ú', 'Ě', 'ě', 'ü', '†', '°', 'Ę', '£', '§', '•', '¶', 'ß', '®', '©', '™', 'ę', '¨', '≠',
    'ģ', 'Į', 'į', 'Ī', '≤', '≥', 'ī', 'Ķ', '∂', '∑', 'ł', 'Ļ', 'ļ', 'Ľ', 'ľ', 'Ĺ', 'ĺ', 'Ņ', 'ņ', 'Ń', '¬', '√', 'ń',
    'Ň', '∆', '«', '»', '…', '\u{a0}', 'ň', 'Ő', 'Õ', 'ő', 'Ō', '–', '—', '“', '”', '‘', '’', '÷', '◊', 'ō', 'Ŕ', 'ŕ',
    'Ř', '‹', '›', 'ř', 'Ŗ', 'ŗ', 'Š', '‚', '„', 'š', 'Ś', 'ś', 'Á', 'Ť', 'ť', 'Í', 'Ž', 'ž', 'Ū', 'Ó', 'Ô', 'ū', 'Ů',
    'Ú', 'ů', 'Ű', 'ű', 'Ų', 'ų', 'Ý', 'ý', 'ķ', 'Ż', 'Ł', 'ż', 'Ģ', 'ˇ',
];
