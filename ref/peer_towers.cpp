// How long llama.cpp's towers take for one picture and one recording of given sizes.
//
// Its command line program needs a language model beside the projector and loads both for every
// run; this loads the projector once and times the encoding alone, again and again.
//
// usage: peer_towers MMPROJ WIDTH HEIGHT FRAMES BANDS THREADS [ROWS]
//   WIDTH, HEIGHT of the fitted picture, FRAMES of BANDS mel values of the recording, 0 to leave
//   either out. Reads lines from stdin: "image" or "audio" encodes once and prints
//   the milliseconds it took, and those of all processors together.
//   ROWS: a file the last result's rows are written to, f32.

#include "clip.h"
#include "clip-impl.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

// The same numbers ref/towers.py makes: a ramp that wraps.
static std::vector<float> ramp(size_t count, float scale, float offset) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++) values[i] = (float) (i * 2654435761u % 1000) / 1000.0f * scale + offset;
    return values;
}

int main(int argc, char ** argv) {
    if (argc < 7) return std::fprintf(stderr, "see the head of ref/peer_towers.cpp\n"), 2;
    const int width = atoi(argv[2]), height = atoi(argv[3]), frames = atoi(argv[4]);
    const int bands = atoi(argv[5]), threads = atoi(argv[6]);
    clip_context_params params = {};
    params.use_gpu = false;
    params.flash_attn_type = CLIP_FLASH_ATTN_TYPE_AUTO;
    params.image_min_tokens = params.image_max_tokens = -1;
    params.warmup = false;
    clip_init_result made = clip_init(argv[1], params);

    clip_image_f32 image, sound;
    image.set_size({width, height}, false, false);
    image.cpy_buf(ramp((size_t) width * height * 3, 1.0f, 0.0f));
    sound.set_size({frames, bands}, false, true);
    sound.cpy_buf(ramp((size_t) frames * bands, 8.0f, -6.0f));

    std::string line;
    std::vector<float> rows;
    while (std::getline(std::cin, line)) {
        bool audio = line == "audio";
        clip_ctx * context = audio ? made.ctx_a : made.ctx_v;
        clip_image_f32_batch batch;
        batch.is_audio = audio;
        batch.entries.push_back(audio ? sound : image);
        const clip_image_f32 & medium = batch.entries.front();
        rows.resize((size_t) clip_n_output_tokens(context, &medium) * clip_n_mmproj_embd(context));
        const clock_t used = std::clock();
        auto before = std::chrono::steady_clock::now();
        bool done = clip_image_batch_encode(context, threads, &batch, rows);
        auto after = std::chrono::steady_clock::now();
        const double cpu = 1e3 * (double) (std::clock() - used) / CLOCKS_PER_SEC;
        if (!done) return std::fprintf(stderr, "encoding failed\n"), 1;
        if (argc > 7) {
            FILE * file = std::fopen(argv[7], "wb");
            std::fwrite(rows.data(), 4, rows.size(), file);
            std::fclose(file);
        }
        const double wall = std::chrono::duration<double, std::milli>(after - before).count();
        std::printf("%.3f %.3f\n", wall, cpu);
        std::fflush(stdout);
    }
    return 0;
}
