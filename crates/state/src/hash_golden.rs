// Made by the reference C library through its Python binding; see golden_vectors.
const GOLDEN_WORDS: &[(&[u64], u64)] = &[
    (&[0], 0xc77b3abb6f87acd9),
    (&[1], 0x2fbc593564db792e),
    (&[42], 0xd5a6f8c838df27c8),
    (&[9223372036854775808], 0x828f2476789a0e5f),
    (&[18446744073709551615], 0x5111c7e47d784413),
    (&[0, 0], 0xd0a66a65c7528968),
    (&[1, 2], 0x07ee86c281446bef),
    (&[18446744073709551615, 7], 0xfda8874b7ffb7109),
    (&[1, 2, 3], 0x7c68b4906e7ea780),
    (&[1, 2, 3, 4], 0x53e911333a923397),
    (&[0, 1, 2, 3, 4, 5, 6, 7, 8], 0xbc6262fe371c5ee6),
    (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], 0x0008fec0eddd9cc0),
    (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39], 0x5aeb7af5f0cce56e),
];
const GOLDEN_BYTES: &[(&[u8], u64)] = &[
    (b"", 0x2d06800538d394c2),
    (b"a", 0xe6c632b61e964e1f),
    (b"abc", 0x78af5f94892f3950),
    (b"user-00000012345", 0x2ee6624770fbab19),
    (b"millstream", 0xbd33922758440f84),
    (b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 0xc90984ffdf50ce42),
    (b"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy", 0xe59d0f1da61c2ee0),
];
