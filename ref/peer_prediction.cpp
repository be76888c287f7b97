// What llama.cpp's prediction block (MTP, "nextn") guesses at every position of one text.
//
// The text goes through the model, which gives what its head multiplied at each position; then
// through the block, each id with the row of the position before it and zeros with the first, as
// llama.cpp's own drafting feeds it. After the last id the block goes on alone: its best guess, with
// its own row, is fed STEPS times.
//
// usage: peer_prediction MODEL IDS OUT STEPS
//   IDS  int32, little endian;  OUT  float32, row-major (ids + STEPS, vocabulary)
//
// Plain kernels, keys and values in f16.

#include "llama.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

LLAMA_API void    llama_set_embeddings_nextn(struct llama_context * ctx, bool value, bool masked);
LLAMA_API float * llama_get_embeddings_nextn_ith(struct llama_context * ctx, int32_t i);

[[noreturn]] static void die(const std::string & what) {
    std::fprintf(stderr, "peer_prediction: %s\n", what.c_str());
    std::exit(1);
}

static std::vector<float> fed(llama_context * context, llama_batch_ext * batch, llama_token id,
                              llama_pos at, const float * row, int width) {
    llama_batch_ext_clear(batch);
    const int32_t i = llama_batch_ext_add_token(batch, 0, id);
    const llama_pos pos[4] = {at, at, at, 0};
    if (i < 0 || !llama_batch_ext_set_pos(batch, i, pos)) die("a token was refused");
    if (row && !llama_batch_ext_set_embd_token(batch, i, {row, 1, (size_t) width}))
        die("a row was refused");
    llama_batch_ext_set_output_logits(batch, i, true);
    if (llama_process(context, LLAMA_PROCESS_TYPE_DECODE, batch) != 0) die("llama_process failed");
    const float * made = llama_get_embeddings_nextn_ith(context, 0);
    if (!made) die("no row came back");
    return std::vector<float>(made, made + width);
}

int main(int argc, char ** argv) {
    if (argc != 5) die("usage: peer_prediction MODEL IDS OUT STEPS");
    std::vector<llama_token> ids;
    std::FILE * file = std::fopen(argv[2], "rb");
    if (!file) die(std::string("cannot read ") + argv[2]);
    for (llama_token id; std::fread(&id, sizeof id, 1, file) == 1;) ids.push_back(id);
    std::fclose(file);
    const int steps = std::atoi(argv[4]);

    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    llama_model_params load = llama_model_default_params();
    load.use_extra_bufts = false;
    load.load_mtp = true;
    llama_model * model = llama_model_load_from_file(argv[1], load);
    if (!model) die(std::string("llama.cpp cannot load ") + argv[1]);
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const int width = llama_model_n_embd_out(model);

    llama_context_params params = llama_context_default_params();
    params.n_ctx = (ids.size() + steps + 255) / 256 * 256;
    params.n_threads = params.n_threads_batch = 2;
    llama_context * trunk = llama_init_from_model(model, params);
    params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    params.ctx_other = trunk;
    llama_context * block = llama_init_from_model(model, params);
    if (!trunk || !block) die("llama.cpp cannot make a context");
    llama_set_embeddings_nextn(trunk, true, false);
    llama_set_embeddings_nextn(block, true, true);
    llama_batch_ext * of_trunk = llama_batch_ext_init(trunk);
    llama_batch_ext * of_block = llama_batch_ext_init(block);

    std::FILE * out = std::fopen(argv[3], "wb");
    if (!out) die(std::string("cannot write ") + argv[3]);
    std::vector<float> before(width, 0.0f);
    llama_token id = ids[0];
    for (size_t at = 0; at < ids.size() + steps; at++) {
        const bool given = at < ids.size();
        if (given) id = ids[at];
        std::vector<float> own = fed(block, of_block, id, at, before.data(), width);
        const float * scores = llama_get_logits_ith(block, 0);
        if (std::fwrite(scores, sizeof(float), vocabulary, out) != (size_t) vocabulary)
            die(std::string("cannot write ") + argv[3]);
        if (at + 1 < ids.size()) before = fed(trunk, of_trunk, id, at, nullptr, width);
        else before = own;
        id = std::max_element(scores, scores + vocabulary) - scores;
    }
    return std::fclose(out) == 0 ? 0 : 1;
}
