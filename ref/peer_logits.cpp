// The logits of every position of one text, as llama.cpp computes them.
//
// Its own tools give either perplexities or a few best tokens; a divergence needs the whole
// vocabulary, and needs it for ids that come from elsewhere. The text goes through
// llama_decode as llama-server would feed it: micro-batches of --ubatch columns, one sequence.
//
// usage: peer_logits MODEL IDS OUT [--threads N] [--ubatch N] [--flash auto|on|off]
//                                  [--kv f16|f32] [--no-repack]
//   IDS  int32, little endian;  OUT  float32, row-major (ids, vocabulary)
//
// --ubatch 1 makes every column a drawn one. On stderr: the kernels the build has, then
// "positions N vocabulary V".

#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static void quiet(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR || std::strstr(text, "model buffer size")) {
        std::fputs(text, stderr);
    }
}

[[noreturn]] static void die(const std::string & what) {
    std::fprintf(stderr, "peer_logits: %s\n", what.c_str());
    std::exit(1);
}

static std::vector<llama_token> read_ids(const char * path) {
    FILE * file = std::fopen(path, "rb");
    if (!file) die(std::string("cannot read ") + path);
    std::vector<llama_token> ids;
    llama_token id;
    while (std::fread(&id, sizeof id, 1, file) == 1) ids.push_back(id);
    std::fclose(file);
    if (ids.empty()) die(std::string(path) + " holds no ids");
    return ids;
}

int main(int argc, char ** argv) {
    if (argc < 4) die("usage: peer_logits MODEL IDS OUT [--threads N] [--ubatch N] "
                      "[--flash auto|on|off] [--kv f16|f32] [--no-repack]");
    int threads = 2, ubatch = 512;
    llama_flash_attn_type flash = LLAMA_FLASH_ATTN_TYPE_AUTO;
    ggml_type kv = GGML_TYPE_F16;
    bool repack = true;
    for (int i = 4; i < argc; i++) {
        const std::string flag = argv[i];
        if (flag == "--no-repack") { repack = false; continue; }
        if (i + 1 == argc) die(flag + " needs a value");
        const std::string value = argv[++i];
        if (flag == "--threads") threads = std::atoi(value.c_str());
        else if (flag == "--ubatch") ubatch = std::atoi(value.c_str());
        else if (flag == "--kv") kv = value == "f32" ? GGML_TYPE_F32 : GGML_TYPE_F16;
        else if (flag == "--flash") flash = value == "on"  ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                          : value == "off" ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                                           : LLAMA_FLASH_ATTN_TYPE_AUTO;
        else die("unknown flag " + flag);
    }
    std::vector<llama_token> ids = read_ids(argv[2]);

    llama_log_set(quiet, nullptr);
    llama_backend_init();
    std::fprintf(stderr, "%s\n", llama_print_system_info());
    llama_model_params load = llama_model_default_params();
    load.use_extra_bufts = repack;
    llama_model * model = llama_model_load_from_file(argv[1], load);
    if (!model) die(std::string("llama.cpp cannot load ") + argv[1]);
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (llama_token id : ids) if (id < 0 || id >= vocabulary) die("an id is outside the vocabulary");

    llama_context_params params = llama_context_default_params();
    params.n_ctx = (ids.size() + 255) / 256 * 256;
    params.n_batch = params.n_ubatch = ubatch;
    params.n_threads = params.n_threads_batch = threads;
    params.flash_attn_type = flash;
    params.type_k = params.type_v = kv;
    llama_context * context = llama_init_from_model(model, params);
    if (!context) die("llama.cpp cannot make a context");

    FILE * out = std::fopen(argv[3], "wb");
    if (!out) die(std::string("cannot write ") + argv[3]);
    llama_batch batch = llama_batch_init(ubatch, 0, 1);
    for (size_t first = 0; first < ids.size(); first += batch.n_tokens) {
        batch.n_tokens = 0;
        for (size_t at = first; at < ids.size() && batch.n_tokens < ubatch; at++) {
            const int column = batch.n_tokens++;
            batch.token[column] = ids[at];
            batch.pos[column] = (llama_pos) at;
            batch.n_seq_id[column] = 1;
            batch.seq_id[column][0] = 0;
            batch.logits[column] = 1;
        }
        if (llama_decode(context, batch) != 0) die("llama_decode failed");
        for (int column = 0; column < batch.n_tokens; column++) {
            const float * row = llama_get_logits_ith(context, column);
            if (!row || std::fwrite(row, sizeof(float), vocabulary, out) != (size_t) vocabulary)
                die(std::string("cannot write ") + argv[3]);
        }
    }
    if (std::fclose(out) != 0) die(std::string("cannot write ") + argv[3]);
    std::fprintf(stderr, "positions %zu vocabulary %d\n", ids.size(), vocabulary);
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    llama_backend_free();
    return 0;
}
