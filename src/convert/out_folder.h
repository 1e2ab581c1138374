// OUT and OUT.partial: what may be started, continued and replaced.
#pragma once

#include <string>
#include <vector>

namespace hedgerow::convert {

// The output of a run. It is built in OUT.partial and becomes OUT by one rename; an OUT that was
// there stands until then.
class OutFolder {
 public:
  enum class State { fresh, resumed, complete };

  // Touches nothing. fresh: OUT.partial is not there, or `force` is set; resumed: it was left by an
  // earlier run and `resume` is set; complete: `resume` is set and OUT holds summary.json, nothing
  // is left to do. Throws Error when OUT or OUT.partial exists and may not be touched, when the
  // parent is no folder, or when OUT contains one of `inputs` or the working folder.
  OutFolder(const std::string& out, bool resume, bool force,
            const std::vector<std::string>& inputs);

  ~OutFolder();
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;

  // Makes OUT.partial; fresh: empty, an old one goes. Throws Error while another run that has done
  // the same is alive: two runs never write into one folder.
  void prepare();

  State state() const { return state_; }
  const std::string& path() const { return partial_; }  // OUT.partial
  std::string file(const char* name) const;

  // Removes what only a running conversion needs and renames. The replaced OUT is removed last.
  void finish();

 private:
  void lock();

  std::string out_, partial_;
  int lock_ = -1;  // of OUT.partial, held until this object goes or the process ends
  State state_ = State::fresh;
};

}  // namespace hedgerow::convert
