#!/usr/bin/env python3
"""Writes gfx11.txt and gfx12.txt: which mnemonic each opcode of each encoding is.

Every opcode value of every encoding is put between benign operands and given to LLVM's disassembler; what it calls
the result is a fact of the instruction set. Operands are not taken from here: src/decode.rs reads them from the
encoding's own fields.

Run as:  python3 make_tables.py [llvm-mc-22]     (writes beside this file; needs LLVM 22)
"""
import os
import re
import subprocess
import sys

LLVM_MC = sys.argv[1] if len(sys.argv) > 1 else "llvm-mc-22"
HERE = os.path.dirname(os.path.abspath(__file__))


def words(*ws):
    """Little-endian bytes of 32-bit words, padded with a word that no encoding needs but a literal may."""
    return b"".join(w.to_bytes(4, "little") for w in ws)


def encodings(gfx12):
    """(name, number of opcodes, function: opcode -> candidate encodings, the first that disassembles counts)."""
    v0, s4 = 0x100, 4
    three = v0 | v0 << 9 | v0 << 18
    scalar3 = s4 | s4 << 9 | s4 << 18
    yield "SOP2", 96, lambda o: [words(2 << 30 | o << 23 | 4 << 16 | s4 << 8 | s4, 0)]
    yield "SOPK", 32, lambda o: [words(0xB << 28 | o << 23 | 4 << 16 | 4, 0), words(0xB << 28 | o << 23 | 4 << 16 | 0xF801, 0)]
    yield "SOP1", 256, lambda o: [words(0xBE8 << 20 | 4 << 16 | o << 8 | s4), words(0xBE8 << 20 | o << 8 | 0x80),
                                  words(0xBE8 << 20 | o << 8 | 0xC1)]
    yield "SOPC", 128, lambda o: [words(0xBF0 << 20 | o << 16 | s4 << 8 | s4)]
    yield "SOPP", 128, lambda o: [words(0xBF8 << 20 | o << 16 | 0)]
    yield "VOP1", 128, lambda o: [words(0x3F << 25 | 2 << 17 | o << 9 | v0), words(0x3F << 25 | 4 << 17 | o << 9 | s4)]
    yield "VOP2", 64, lambda o: [words(2 << 17 | o << 25 | 2 << 9 | v0, 0)] if o not in (0x3E, 0x3F) else []
    yield "VOPC", 256, lambda o: [words(0x3E << 25 | o << 17 | 2 << 9 | v0)]
    yield "VOP3", 1024, lambda o: [words(0x35 << 26 | o << 16 | 2, three), words(0x35 << 26 | o << 16 | 2, scalar3),
                                   words(0x35 << 26 | o << 16 | 2, v0 | s4 << 9 | s4 << 18)]
    # op_sel_hi all ones: how the assembler writes a packed operation without modifiers.
    yield "VOP3P", 128, lambda o: [words(0xCC << 24 | o << 16 | 1 << 14 | 16, three | 3 << 27)]
    # The other half multiplies; a half with one source wants its second register field zero.
    y_mul, x_mul = 0x103 | 2 << 9 | 2 << 24, 3 << 22 | 1 << 9
    yield "VOPDX", 16, lambda o: [words(0x32 << 26 | o << 22 | 3 << 17 | r << 9 | v0, y_mul, 0) for r in (1, 0)]
    yield "VOPDY", 32, lambda o: [words(0x32 << 26 | x_mul | o << 17 | v0, 0x103 | r << 9 | 2 << 24, 0) for r in (2, 0)]
    yield "DS", 256, lambda o: [words(0x36 << 26 | o << 18, 4 << 24), words(0x36 << 26 | o << 18, 0)]
    if gfx12:
        yield "SMEM", 64, lambda o: [words(0x3D << 26 | o << 13 | 16 << 6 | 2, 124 << 25)]
        for name, lead in (("FLAT", 0xEC), ("GLOBAL", 0xEE), ("SCRATCH", 0xED)):
            yield name, 256, lambda o, lead=lead: [words(lead << 24 | o << 14 | 124, 2 << 23, 0),
                                                   words(lead << 24 | o << 14 | 124, 2 << 23 | 1 << 20, 0),
                                                   words(lead << 24 | o << 14 | 8, 2 << 23, 0)]
        yield "BUFFER", 256, lambda o: [words(0x31 << 26 | o << 14 | 124, 8 << 9, 0)]
    else:
        yield "SMEM", 256, lambda o: [words(0x3D << 26 | o << 18 | 16 << 6 | 2, 124 << 25)]
        for name, seg in (("FLAT", 0), ("SCRATCH", 1), ("GLOBAL", 2)):
            yield name, 128, lambda o, seg=seg: [words(0x37 << 26 | o << 18 | seg << 16, 124 << 16),
                                                 words(0x37 << 26 | o << 18 | seg << 16 | 1 << 14, 124 << 16),
                                                 words(0x37 << 26 | o << 18 | seg << 16, 8 << 16)]
        yield "BUFFER", 256, lambda o: [words(0x38 << 26 | o << 18, 2 << 16 | 124 << 24)]


def disassemble(cpu, samples):
    """Mnemonic (or None) of each sample. A numbered s_nop between samples keeps the answers in step."""
    text = []
    for i, sample in enumerate(samples):
        marker = words(0xBF800000 | i)
        for b in (marker, sample):
            text.append("[" + ", ".join(f"0x{x:02x}" for x in b) + "]")
    out = subprocess.run([LLVM_MC, "--disassemble", "-triple=amdgcn-amd-amdhsa", f"-mcpu={cpu}",
                          "-mattr=+real-true16"],
                         input="\n".join(text), capture_output=True, text=True).stdout
    found, at = [None] * len(samples), -1
    for line in out.splitlines():
        line = line.strip()
        if not line or line.startswith("."):
            continue
        marker = re.fullmatch(r"s_nop (0x[0-9a-f]+|\d+)", line.split("//")[0].strip())
        if marker and at + 1 < len(samples) and int(marker.group(1), 0) == at + 1:
            at += 1
        elif at >= 0 and found[at] is None:
            found[at] = line
    return found


def mnemonic(encoding, line):
    if encoding in ("VOPDX", "VOPDY"):
        parts = line.split("::")
        if len(parts) != 2:
            return None
        line = parts[0 if encoding == "VOPDX" else 1].strip()
    name = line.split()[0]
    for suffix in ("_e64_dpp", "_e32", "_e64", "_dpp"):
        name = name.removesuffix(suffix)
    return name.replace("v_dual_", "v_")


def main():
    for generation, cpu in (("gfx11", "gfx1151"), ("gfx12", "gfx1201")):
        rows = []
        for encoding, count, build in encodings(generation == "gfx12"):
            candidates = [build(o) for o in range(count)]
            names = [None] * count
            for k in range(max(map(len, candidates))):
                which = [o for o in range(count) if names[o] is None and k < len(candidates[o])]
                for o, line in zip(which, disassemble(cpu, [candidates[o][k] for o in which])):
                    names[o] = mnemonic(encoding, line) if line else None
            rows += [f"{encoding} {o} {n}" for o, n in enumerate(names) if n]
        with open(os.path.join(HERE, generation + ".txt"), "w") as f:
            f.write(f"# encoding, opcode, mnemonic on {cpu}; written by isa/make_tables.py, do not edit\n")
            f.write("\n".join(rows) + "\n")
        print(generation, len(rows), "opcodes")


main()
