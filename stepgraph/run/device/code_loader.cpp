// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/device/code_loader.h"

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

namespace orc = llvm::orc;

std::string message_of(llvm::Error error) { return llvm::toString(std::move(error)); }

/// What forms may call of this process, and nothing else.
orc::SymbolMap library_symbols(orc::ExecutionSession& session) {
  orc::SymbolMap symbols;
  const auto add = [&](const char* name, auto* function) {
    symbols[session.intern(name)] = {orc::ExecutorAddr::fromPtr(function), llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
  using One = double(double);
  using Two = double(double, double);
#define STEPGRAPH_LIBRARY_ONE(name) add(#name, static_cast<One*>(::name));
#define STEPGRAPH_LIBRARY_TWO(name) add(#name, static_cast<Two*>(::name));
  STEPGRAPH_LIBRARY_ONE(exp)
  STEPGRAPH_LIBRARY_ONE(expm1) STEPGRAPH_LIBRARY_ONE(exp2) STEPGRAPH_LIBRARY_ONE(log) STEPGRAPH_LIBRARY_ONE(log1p) STEPGRAPH_LIBRARY_ONE(log2)
      STEPGRAPH_LIBRARY_ONE(log10) STEPGRAPH_LIBRARY_ONE(sin) STEPGRAPH_LIBRARY_ONE(cos) STEPGRAPH_LIBRARY_ONE(tan) STEPGRAPH_LIBRARY_ONE(asin)
          STEPGRAPH_LIBRARY_ONE(acos) STEPGRAPH_LIBRARY_ONE(atan) STEPGRAPH_LIBRARY_ONE(sinh) STEPGRAPH_LIBRARY_ONE(cosh) STEPGRAPH_LIBRARY_ONE(tanh)
              STEPGRAPH_LIBRARY_ONE(asinh) STEPGRAPH_LIBRARY_ONE(acosh) STEPGRAPH_LIBRARY_ONE(atanh) STEPGRAPH_LIBRARY_ONE(erf) STEPGRAPH_LIBRARY_ONE(erfc)
                  STEPGRAPH_LIBRARY_TWO(pow) STEPGRAPH_LIBRARY_TWO(atan2) STEPGRAPH_LIBRARY_TWO(fmod)
#undef STEPGRAPH_LIBRARY_ONE
#undef STEPGRAPH_LIBRARY_TWO
                      add("memcpy", static_cast<void* (*)(void*, const void*, size_t)>(std::memcpy));
  return symbols;
}

/// Sections and symbols lie within the file: the linker takes some of that for granted.
void check_object(const FormCode& code) {
  const auto refuse = [&](const std::string& why) { throw UserError("machine code of " + code.symbol + " is damaged: " + why); };
  const auto buffer = llvm::MemoryBufferRef(code.object, code.symbol);
  llvm::Expected<llvm::object::ELFObjectFile<llvm::object::ELF64LE>> object = llvm::object::ELFObjectFile<llvm::object::ELF64LE>::create(buffer);
  if (!object) refuse(message_of(object.takeError()));
  const auto& file = object->getELFFile();
  if (file.getHeader().e_machine != llvm::ELF::EM_X86_64 || file.getHeader().e_type != llvm::ELF::ET_REL) refuse("not an object file of x86-64");
  auto sections = file.sections();
  if (!sections) refuse(message_of(sections.takeError()));
  for (const auto& section : *sections) {
    if (section.sh_type == llvm::ELF::SHT_NOBITS) continue;
    if (auto contents = file.getSectionContents(section); !contents) refuse(message_of(contents.takeError()));
  }
}

class LinkedCode : public LoadedCode {
 public:
  explicit LinkedCode(std::unique_ptr<orc::ExecutorProcessControl> process)
      : session_(std::move(process)), layer_(session_), dylib_(session_.createBareJITDylib("forms")) {
    // Errors come back from the lookup; nothing is printed.
    session_.setErrorReporter([this](llvm::Error error) { reported_ += (reported_.empty() ? "" : "; ") + message_of(std::move(error)); });
  }
  ~LinkedCode() override { llvm::consumeError(session_.endSession()); }

  void link(std::span<const FormCode> code) {
    if (auto error = dylib_.define(orc::absoluteSymbols(library_symbols(session_)))) throw UserError("machine code: " + message_of(std::move(error)));
    orc::SymbolLookupSet wanted;
    std::set<std::string_view> seen;
    for (const FormCode& form : code) {
      if (!seen.insert(form.symbol).second) continue;
      check_object(form);
      if (auto error = layer_.add(dylib_, llvm::MemoryBuffer::getMemBufferCopy(form.object, form.symbol))) {
        throw UserError("machine code of " + form.symbol + " is damaged: " + message_of(std::move(error)));
      }
      wanted.add(session_.intern(form.symbol));
    }
    auto found = session_.lookup({{&dylib_, orc::JITDylibLookupFlags::MatchAllSymbols}}, std::move(wanted));
    if (!found) {
      const std::string why = message_of(found.takeError());
      throw UserError("machine code cannot be linked: " + (reported_.empty() ? why : reported_));
    }
    for (const FormCode& form : code) functions_.push_back((*found)[session_.intern(form.symbol)].getAddress().toPtr<FormFunction>());
  }
  FormFunction function(size_t form) const override { return functions_.at(form); }

 private:
  std::string reported_;
  orc::ExecutionSession session_;
  orc::ObjectLinkingLayer layer_;
  orc::JITDylib& dylib_;
  std::vector<FormFunction> functions_;
};

}  // namespace

std::unique_ptr<LoadedCode> load_code(std::span<const FormCode> code) {
  auto process = orc::SelfExecutorProcessControl::Create();
  if (!process) throw SystemError("machine code: " + message_of(process.takeError()));
  auto linked = std::make_unique<LinkedCode>(std::move(*process));
  if (!code.empty()) linked->link(code);
  return linked;
}

}  // namespace stepgraph
