//! Late linking: the shim's calls into the library jump through a table, which the program fills when it opens the
//! library. So a program starts where there is no library.

use crate::header::Header;
use crate::sdk::Sdk;
use crate::{run, write};
use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind, elf};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Compiles the shim against the header, and says the library's name and which of its calls the shim needs.
pub fn link(sdk: &Sdk, header: &Header, out: &Path) -> Result<(String, Vec<String>), String> {
    // A call with arguments of another kind than public sources show is an error here, not at run time.
    let strict = ["implicit-function-declaration", "incompatible-pointer-types", "int-conversion"];
    let strict = strict.map(|what| format!("-Werror={what}"));
    let shim = compile(header.cc().include(out).flags(&strict), Path::new("shim/shim.c"), &out.join("shim.o"))
        .map_err(|why| format!("our C shim does not fit the Rivermax header {}: {why}", sdk.header.display()))?;
    let (soname, defined) = library(&sdk.library)?;
    let mut calls: Vec<String> = undefined(&shim)?.into_iter().filter(|name| defined.contains_key(name)).collect();
    // The stand-in's controls need no shim.
    calls.extend(defined.keys().filter(|name| name.starts_with("rmx_stand_in_")).cloned());
    if let Some(name) = calls.iter().find(|&name| defined[name] == SymbolKind::Data) {
        let library = sdk.library.display();
        return Err(format!(
            "the Rivermax header uses {name}, which is data of {library}: only calls can be linked late"
        ));
    }
    let jumps = out.join("jumps.S");
    write(&jumps, &assembler(&calls)?)?;
    let jumps = compile(&mut header.cc(), &jumps, &out.join("jumps.o"))?;
    all_found(sdk, header, &shim, &jumps, out)?;
    let mut archive = cc::Build::new();
    archive.object(&shim).object(&jumps).compile("gdmedia_rmx_shim");
    Ok((soname, calls))
}

/// One object file; what the compiler says is in the error.
fn compile(cc: &mut cc::Build, source: &Path, object: &Path) -> Result<PathBuf, String> {
    run(cc.get_compiler().to_command().arg("-c").arg(source).arg("-o").arg(object))?;
    Ok(object.to_path_buf())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// What an object file leaves to be found elsewhere.
fn undefined(path: &Path) -> Result<Vec<String>, String> {
    let data = read(path)?;
    let file = object::File::parse(&*data).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(file.symbols().filter(|s| s.is_undefined()).filter_map(|s| Some(s.name().ok()?.to_owned())).collect())
}

/// The name of a library, and what it defines.
fn library(path: &Path) -> Result<(String, BTreeMap<String, SymbolKind>), String> {
    let data = read(path)?;
    let wrong =
        |e: &dyn std::fmt::Display| format!("the Rivermax library {} is no usable library: {e}", path.display());
    let file = object::File::parse(&*data).map_err(|e| wrong(&e))?;
    let defined = file.dynamic_symbols().filter(|s| s.is_definition());
    let defined = defined.filter_map(|s| Some((s.name().ok()?.to_owned(), s.kind()))).collect();
    let plain = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok((soname(&data).unwrap_or(plain), defined))
}

/// DT_SONAME of a 64-bit ELF file.
fn soname(data: &[u8]) -> Option<String> {
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let (dynamic, strings) = sections.dynamic(endian, data).ok()??;
    let strings = sections.strings(endian, data, strings).ok()?;
    let entry = dynamic.iter().find(|entry| entry.tag(endian) == elf::DT_SONAME)?;
    Some(String::from_utf8_lossy(entry.string(endian, strings).ok()?).into_owned())
}

/// One jump for each call. Hidden, so that the library's own calls to itself stay its own.
fn assembler(calls: &[String]) -> Result<String, String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let mut text = String::from("/* Made by build/late.rs. */\n.text\n");
    for (i, call) in calls.iter().enumerate() {
        let at = 8 * i;
        let jump = match arch.as_str() {
            "x86_64" => format!("    endbr64\n    jmp *gdmedia_rmx_table+{at}(%rip)\n"),
            "aarch64" => format!(
                "    hint #34\n    adrp x16, gdmedia_rmx_table\n    add x16, x16, :lo12:gdmedia_rmx_table\n    \
                 ldr x16, [x16, #{at}]\n    br x16\n"
            ),
            _ => return Err(format!("Rivermax is for x86_64 and aarch64, not for {arch}")),
        };
        text += &format!(".globl {call}\n.hidden {call}\n.type {call}, %function\n{call}:\n{jump}");
    }
    let length = 8 * calls.len();
    text += &format!(
        ".bss\n.balign 8\n.globl gdmedia_rmx_table\n.hidden gdmedia_rmx_table\n.type gdmedia_rmx_table, %object\n\
         .size gdmedia_rmx_table, {length}\ngdmedia_rmx_table:\n    .zero {length}\n.section .note.GNU-stack,\"\",%progbits\n"
    );
    Ok(text)
}

/// Lets the linker say what neither the library nor the system's C library has.
fn all_found(sdk: &Sdk, header: &Header, shim: &Path, jumps: &Path, out: &Path) -> Result<(), String> {
    if env::var_os("CARGO_CFG_SANITIZE").is_some() {
        return Ok(()); // its runtime is in the program
    }
    let mut command = header.cc().get_compiler().to_command();
    command.args(["-shared", "-Wl,-z,defs", "-o"]).arg(out.join("probe.so")).arg(shim).arg(jumps);
    run(&mut command).map(drop).map_err(|why| {
        let (header, library) = (sdk.header.display(), sdk.library.display());
        format!("the Rivermax library {library} lacks calls that its header {header} makes: {why}")
    })
}

/// The table as Rust sees it.
pub fn table(calls: &[String]) -> String {
    let names: String = calls.iter().map(|call| format!("c{call:?}, ")).collect();
    format!(
        "pub const CALLS: &[&std::ffi::CStr] = &[{names}];\n\
         pub fn table() -> &'static [std::sync::atomic::AtomicPtr<std::ffi::c_void>] {{\n\
             unsafe extern \"C\" {{\n\
                 static gdmedia_rmx_table: [std::sync::atomic::AtomicPtr<std::ffi::c_void>; {}];\n\
             }}\n\
             // SAFETY: that many pointers, written only through this.\n\
             unsafe {{ &gdmedia_rmx_table }}\n\
         }}\n",
        calls.len()
    )
}
