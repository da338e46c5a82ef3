use super::pipeline;
use proptest::prelude::*;

/// What a program begins with, and its deeds.
fn program() -> impl Strategy<Value = Vec<u8>> {
    let setup = proptest::array::uniform8(any::<u8>());
    (setup, proptest::collection::vec(any::<u8>(), 0..240)).prop_map(|(setup, deeds)| [&setup[..], &deeds].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn programs_of_any_kind(program in program()) {
        pipeline(&program);
    }

    #[test]
    fn programs_whose_every_counter_is_foretold(mut program in program()) {
        program[7] |= 0x80;
        pipeline(&program);
    }
}
