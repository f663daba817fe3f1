//! The emulator's decoder against LLVM's disassembler, on every instruction of the machine code that ships.

#[path = "runtimes/rdna/tests/support/decoded.rs"]
mod decoded;

use std::collections::BTreeMap;

use hipfire::backend::hip::pack::Pack;

#[test]
#[cfg_attr(not(all(hipfire_kernels, has_objdump)), ignore = "built without GPU kernels, or llvm-objdump-22 is missing")]
fn every_instruction_that_ships_decodes_to_the_mnemonic_and_size_that_llvm_prints() {
    let pack = Pack::embedded().unwrap();
    let (mut compared, mut without) = (0, BTreeMap::new());
    for target in ["gfx1151", "gfx1201"] {
        for (object, image) in pack.objects(target) {
            compared += decoded::compare(&object.source, image, target, &mut without);
        }
    }
    assert!(compared > 100_000, "{compared} instructions compared");
    assert!(without.is_empty(), "instructions of our code objects without semantics: {without:?}");
}
